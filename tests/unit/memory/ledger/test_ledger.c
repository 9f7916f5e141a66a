/* SPDX-License-Identifier: MIT */
/* The ledger: held against a plain array, its error codes, marks, ids and segments. Addresses are numbers: a ledger
 * never touches what they name. */
#include "ledger_fixture.h"

static loch_tag make_tag(const char *name)
{
    loch_tag tag;
    CHECK_OK(loch_tag_create(name, &tag));
    return tag;
}

/* --- error codes --- */

static void wrong_addresses_have_codes_of_their_own(void **state)
{
    (void)state;
    lochi_ledger *ledger = make_ledger();
    lochi_entry entry;
    CHECK_FAILS(lochi_ledger_take(ledger, at(BASE), 0, &entry), FOREIGN);
    CHECK_OK(lochi_ledger_add_simple(ledger, at(BASE), 100, 0));
    CHECK_OK(lochi_ledger_add_simple(ledger, at(BASE + 5 * TEST_GIB), 3 * TEST_GIB, 0));
    CHECK_FAILS(lochi_ledger_add_simple(ledger, at(BASE), 100, 0), DRIVER);
    CHECK_FAILS(lochi_ledger_take(ledger, at(BASE), 99, &entry), INVALID);
    CHECK_FAILS(lochi_ledger_take(ledger, at(BASE + 1), 0, &entry), INTERIOR);
    CHECK_FAILS(lochi_ledger_take(ledger, at(BASE + 99), 0, &entry), INTERIOR);
    CHECK_FAILS(lochi_ledger_take(ledger, at(BASE + 100), 0, &entry), FOREIGN);
    CHECK_FAILS(lochi_ledger_find(ledger, at(BASE + 8 * TEST_GIB - 1), &entry), INTERIOR);
    CHECK_FAILS(lochi_ledger_find(ledger, at(BASE + 8 * TEST_GIB), &entry), FOREIGN);
    CHECK_FAILS(lochi_ledger_set_note(ledger, at(BASE + 2), 1), INTERIOR);
    assert_int_equal(read_stats(ledger, 0).blocks, 2);
    CHECK_OK(lochi_ledger_take(ledger, at(BASE), 100, &entry));
    CHECK_FAILS(lochi_ledger_take(ledger, at(BASE), 100, &entry), DOUBLE_FREE);
    CHECK_FAILS(lochi_ledger_find(ledger, at(BASE), &entry), DOUBLE_FREE);
    CHECK_FAILS(lochi_ledger_set_note(ledger, at(BASE), 1), DOUBLE_FREE);
    /* a freed address inside a new block is that block's business */
    CHECK_OK(lochi_ledger_add_simple(ledger, at(BASE - 16), 64, 0));
    CHECK_FAILS(lochi_ledger_take(ledger, at(BASE), 0, &entry), INTERIOR);
    assert_int_equal(read_stats(ledger, 0).frees, 1);
    lochi_ledger_destroy(ledger);
    lochi_ledger_destroy(NULL);
}

static void entries_come_back_as_they_went_in(void **state)
{
    (void)state;
    const size_t sizes[] = {0, 1, 8190, 8191, 8192, TEST_MIB, (size_t)1 << 33, ((size_t)1 << 47) - 1};
    const loch_tag tags[] = {0, LOCH_TAG_COUNT_MAX - 1};
    lochi_ledger *ledger = make_ledger();
    uintptr_t address = BASE;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (unsigned variant = 0; variant < 8; variant++) {
            const lochi_entry entry = {.address = address,
                                       .requested = sizes[i],
                                       .allocated = variant & 1 ? sizes[i] + 4096 : sizes[i],
                                       .tag = (uint16_t)tags[variant >> 1 & 1],
                                       .note = variant & 4 ? 0xff : 0};
            lochi_entry found, taken;
            uint64_t id = 0;
            CHECK_OK(lochi_ledger_add(ledger, &entry, variant & 2 ? &id : NULL));
            CHECK_OK(lochi_ledger_find(ledger, at(address), &found));
            assert_true(found.id && (!(variant & 2) || found.id == id));
            CHECK_OK(lochi_ledger_set_note(ledger, at(address), 7));
            CHECK_OK(lochi_ledger_set_note(ledger, at(address), entry.note));
            CHECK_OK(lochi_ledger_take(ledger, at(address), entry.requested, &taken));
            assert_int_equal(taken.id, found.id);
            lochi_ledger_put_back(ledger, &taken);
            CHECK_OK(lochi_ledger_find(ledger, at(address), &found));
            assert_int_equal(found.id, taken.id);
            assert_int_equal(found.address, entry.address);
            assert_int_equal(found.requested, entry.requested);
            assert_int_equal(found.allocated, entry.allocated);
            assert_int_equal(found.tag, entry.tag);
            assert_int_equal(found.note, entry.note);
            address += variant < 4 ? 16 : TEST_MIB;
        }
    }
    lochi_ledger_destroy(ledger);
}

/* --- against a plain array --- */

enum { MODEL_BLOCKS = 4000, MODEL_TAGS = 3 };

typedef struct model_block {
    lochi_entry entry; /* id 0: not asked for yet */
    size_t room;       /* up to the next block */
    bool is_live, was_freed;
} model_block;

typedef struct model {
    model_block blocks[MODEL_BLOCKS];
    loch_stats all, tags[MODEL_TAGS];
    uint64_t last_id;
    bool has_slack;
} model;

static void model_raise(uint64_t *peak, uint64_t value)
{
    if (value > *peak) *peak = value;
}

static void model_count(loch_stats *stats, const lochi_entry *entry, bool is_in)
{
    const uint64_t sign = is_in ? 1 : (uint64_t)-1;
    stats->blocks += sign;
    stats->requested_bytes += sign * entry->requested;
    stats->allocated_bytes += sign * entry->allocated;
    model_raise(&stats->peak_blocks, stats->blocks);
    model_raise(&stats->peak_requested_bytes, stats->requested_bytes);
    model_raise(&stats->peak_allocated_bytes, stats->allocated_bytes);
    if (is_in) model_raise(&stats->largest_bytes, entry->requested);
    if (is_in)
        stats->allocs++;
    else
        stats->frees++;
}

static void model_new_segment(loch_stats *stats)
{
    stats->peak_blocks = stats->blocks;
    stats->peak_requested_bytes = stats->requested_bytes;
    stats->peak_allocated_bytes = stats->allocated_bytes;
    stats->largest_bytes = 0;
}

/* Places of blocks: dense, mixed, one a page, one in 2 MiB. Never does one reach into the next. */
static void model_init(model *m, test_random *random, const loch_tag *tags)
{
    uintptr_t address = BASE;
    memset(m, 0, sizeof *m);
    for (size_t i = 0; i < MODEL_BLOCKS; i++) {
        const size_t kinds[] = {16, 16 * (1 + test_random_below(random, 40)), 4096, 2 * TEST_MIB};
        m->blocks[i].room = kinds[i * 4 / MODEL_BLOCKS];
        m->blocks[i].entry.address = address;
        m->blocks[i].entry.tag =
            (uint16_t)tags[test_random_below(random, 8) ? 0 : test_random_below(random, MODEL_TAGS)];
        address += m->blocks[i].room;
    }
}

static void model_add(model *m, lochi_ledger *ledger, model_block *block, test_random *random)
{
    lochi_entry *entry = &block->entry;
    entry->requested = entry->allocated = 1 + test_random_below(random, block->room);
    entry->id = 0;
    entry->note = 0;
    if (m->has_slack && block->room > entry->requested && !test_random_below(random, 4))
        entry->allocated += test_random_below(random, block->room - entry->requested + 1);
    if (entry->allocated == entry->requested && test_random_below(random, 2)) {
        CHECK_OK(lochi_ledger_add_simple(ledger, at(entry->address), entry->requested, entry->tag));
    } else {
        CHECK_OK(lochi_ledger_add(ledger, entry, test_random_below(random, 2) ? &entry->id : NULL));
        if (entry->id) assert_int_equal(entry->id, ++m->last_id);
    }
    block->is_live = true;
    model_count(&m->all, entry, true);
    if (entry->tag) model_count(&m->tags[entry->tag - 1], entry, true);
}

static void model_check_entry(model *m, model_block *block, const lochi_entry *found)
{
    if (!block->entry.id) block->entry.id = ++m->last_id;
    assert_int_equal(found->address, block->entry.address);
    assert_int_equal(found->requested, block->entry.requested);
    assert_int_equal(found->allocated, block->entry.allocated);
    assert_int_equal(found->id, block->entry.id);
    assert_int_equal(found->tag, block->entry.tag);
    assert_int_equal(found->note, block->entry.note);
}

static void model_take(model *m, lochi_ledger *ledger, model_block *block, test_random *random)
{
    lochi_entry taken;
    const size_t bytes = test_random_below(random, 2) ? block->entry.requested : 0;
    CHECK_OK(lochi_ledger_take(ledger, at(block->entry.address), bytes, &taken));
    assert_int_equal(taken.id, block->entry.id);
    assert_int_equal(taken.requested, block->entry.requested);
    if (!test_random_below(random, 8)) {
        lochi_ledger_put_back(ledger, &taken);
        return;
    }
    block->is_live = false;
    block->was_freed = true;
    model_count(&m->all, &block->entry, false);
    if (block->entry.tag) model_count(&m->tags[block->entry.tag - 1], &block->entry, false);
}

/* One operation on a block that is not live, or on one that is. */
static void model_step(model *m, lochi_ledger *ledger, model_block *block, test_random *random)
{
    lochi_entry found;
    const size_t choice = test_random_below(random, 8);
    void *address = at(block->entry.address);
    if (!block->is_live && choice < 6) {
        model_add(m, ledger, block, random);
    } else if (!block->is_live) {
        /* a mark may have gone, but none is made up */
        CHECK_FAILS_SET(lochi_ledger_take(ledger, address, 0, &found),
                        block->was_freed ? TEST_SET(DOUBLE_FREE) | TEST_SET(FOREIGN) : TEST_SET(FOREIGN));
    } else if (choice < 4) {
        model_take(m, ledger, block, random);
    } else if (choice < 6) {
        CHECK_OK(lochi_ledger_find(ledger, address, &found));
        model_check_entry(m, block, &found);
    } else if (choice < 7) {
        block->entry.note = (uint8_t)test_random_below(random, 3);
        CHECK_OK(lochi_ledger_set_note(ledger, address, block->entry.note));
    } else if (block->entry.allocated > 1) {
        CHECK_FAILS(lochi_ledger_take(ledger, (char *)address + 1, 0, &found), INTERIOR);
    }
}

static void model_check_stats(const loch_stats *expected, const loch_stats *seen, bool with_allocated)
{
    assert_int_equal(seen->allocs, expected->allocs);
    assert_int_equal(seen->frees, expected->frees);
    assert_int_equal(seen->blocks, expected->blocks);
    assert_int_equal(seen->peak_blocks, expected->peak_blocks);
    assert_int_equal(seen->requested_bytes, expected->requested_bytes);
    assert_int_equal(seen->peak_requested_bytes, expected->peak_requested_bytes);
    assert_int_equal(seen->largest_bytes, expected->largest_bytes);
    if (!with_allocated) return;
    assert_int_equal(seen->allocated_bytes, expected->allocated_bytes);
    assert_int_equal(seen->peak_allocated_bytes, expected->peak_allocated_bytes);
}

static loch_status model_visit(const lochi_entry *entry, void *user)
{
    model *m = user;
    for (size_t i = 0; i < MODEL_BLOCKS; i++) {
        if (m->blocks[i].entry.address != entry->address) continue;
        assert_true(m->blocks[i].is_live);
        model_check_entry(m, &m->blocks[i], entry);
        m->blocks[i].is_live = false; /* none comes twice */
        m->all.blocks--;
        return LOCH_OK;
    }
    fail_msg("a block at %p came up", (void *)entry->address);
    return LOCH_OK;
}

static loch_status stop_at_once(const lochi_entry *entry, void *user)
{
    (void)entry;
    ++*(int *)user;
    return LOCH_E_BUSY;
}

static void random_operations_agree_with_a_plain_array(void **state)
{
    (void)state;
    static model m;
    test_random random = {test_seed(7)};
    const loch_tag tags[MODEL_TAGS] = {make_tag("ledger-a"), make_tag("ledger-b"), make_tag("ledger-c")};
    assert_true(tags[0] == 1 && tags[2] == 3);
    for (int round = 0; round < 2; round++) {
        lochi_ledger *ledger = make_ledger();
        model_init(&m, &random, tags);
        for (size_t i = 0; i < 60000; i++) {
            if (i == 30000) m.has_slack = round == 1;
            model_step(&m, ledger, &m.blocks[test_random_below(&random, MODEL_BLOCKS)], &random);
            if (i % 97 == 0) {
                const loch_stats seen = read_stats(ledger, 0);
                model_check_stats(&m.all, &seen, true);
                for (size_t tag = 0; tag < MODEL_TAGS; tag++) {
                    const loch_stats of_tag = read_stats(ledger, tags[tag]);
                    model_check_stats(&m.tags[tag], &of_tag, false);
                }
                assert_int_equal(lochi_ledger_count_live(ledger), m.all.blocks);
            }
            if (i % 5003 == 0) {
                lochi_ledger_new_segment(ledger);
                model_new_segment(&m.all);
                for (size_t tag = 0; tag < MODEL_TAGS; tag++)
                    model_new_segment(&m.tags[tag]);
            }
        }
        int visits = 0;
        CHECK_STATUS(lochi_ledger_walk(ledger, stop_at_once, &visits), LOCH_E_BUSY);
        assert_int_equal(visits, 1);
        lochi_ledger_destroy(ledger);
    }
}

static void a_walk_sees_each_block_once(void **state)
{
    (void)state;
    static model m;
    test_random random = {test_seed(8)};
    const loch_tag tags[MODEL_TAGS] = {make_tag("ledger-a"), make_tag("ledger-b"), make_tag("ledger-c")};
    lochi_ledger *ledger = make_ledger();
    model_init(&m, &random, tags);
    for (size_t i = 0; i < 20000; i++)
        model_step(&m, ledger, &m.blocks[test_random_below(&random, MODEL_BLOCKS)], &random);
    assert_true(m.all.blocks > 1000);
    CHECK_OK(lochi_ledger_walk(ledger, model_visit, &m));
    assert_int_equal(m.all.blocks, 0);
    lochi_ledger_destroy(ledger);
}

/* --- segments and marks --- */

static void peaks_belong_to_segments(void **state)
{
    (void)state;
    lochi_ledger *ledger = make_ledger();
    lochi_entry entry;
    for (uintptr_t i = 0; i < 10; i++)
        CHECK_OK(lochi_ledger_add_simple(ledger, at(BASE + i * 64), 10, 0));
    for (uintptr_t i = 0; i < 6; i++)
        CHECK_OK(lochi_ledger_take(ledger, at(BASE + i * 64), 0, &entry));
    loch_stats stats = read_stats(ledger, 0);
    assert_int_equal(stats.peak_blocks, 10);
    assert_int_equal(stats.peak_requested_bytes, 100);
    assert_int_equal(stats.largest_bytes, 10);
    lochi_ledger_new_segment(ledger);
    stats = read_stats(ledger, 0);
    assert_int_equal(stats.peak_blocks, 4);
    assert_int_equal(stats.peak_allocated_bytes, 40);
    assert_int_equal(stats.largest_bytes, 0);
    /* what was in use at its start counts, though it goes at once */
    for (uintptr_t i = 6; i < 10; i++)
        CHECK_OK(lochi_ledger_take(ledger, at(BASE + i * 64), 0, &entry));
    CHECK_OK(lochi_ledger_add_simple(ledger, at(BASE), 7, 0));
    stats = read_stats(ledger, 0);
    assert_int_equal(stats.blocks, 1);
    assert_int_equal(stats.peak_blocks, 4);
    assert_int_equal(stats.peak_requested_bytes, 40);
    assert_int_equal(stats.largest_bytes, 7);
    assert_int_equal(stats.allocs, 11);
    assert_int_equal(stats.frees, 10);
    lochi_ledger_count_failure(ledger);
    assert_int_equal(read_stats(ledger, 0).failures, 1);
    lochi_ledger_destroy(ledger);
}

/* Addresses that never come back: marks must not pile up. */
static void marks_do_not_pile_up(void **state)
{
    (void)state;
    const size_t steps[] = {4096, 64 * TEST_KIB, 2 * TEST_MIB};
    for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        lochi_ledger *ledger = make_ledger();
        lochi_entry entry;
        loch_host_usage early = {.size = sizeof early}, late = {.size = sizeof late};
        const size_t held = 100;
        size_t caught = 0;
        for (size_t i = 0; i < 60000; i++) {
            CHECK_OK(lochi_ledger_add_simple(ledger, at(BASE + i * steps[s]), 48, 0));
            if (i >= held) CHECK_OK(lochi_ledger_take(ledger, at(BASE + (i - held) * steps[s]), 48, &entry));
            if (i == 5000) CHECK_OK(loch_host_get_usage(&early));
            if (i > held && i % 1000 == 0) /* freed a moment ago */
                caught += lochi_ledger_take(ledger, at(BASE + (i - held) * steps[s]), 48, &entry) == LOCH_E_DOUBLE_FREE;
        }
        CHECK_OK(loch_host_get_usage(&late));
        assert_true(late.bytes < early.bytes + 64 * TEST_KIB);
        assert_true(caught >= 50);
        assert_int_equal(lochi_ledger_count_live(ledger), held);
        lochi_ledger_destroy(ledger);
    }
}

/* --- without host memory --- */

/* Goes on after failures, and checks that each left the figures alone. Returns how many there were. */
static size_t run_short_of_memory(lochi_ledger *ledger)
{
    size_t failures = 0;
    uint64_t live = 0;
    lochi_entry entry;
    for (uintptr_t i = 0; i < 400; i++) {
        const uintptr_t address = BASE + (i % 3 ? i * 48 : i * TEST_MIB);
        const loch_status status = i % 5 ? lochi_ledger_add_simple(ledger, at(address), 40, (loch_tag)(i % 7 == 0))
                                         : lochi_ledger_add(ledger, &(lochi_entry){address, 40, 48, 0, 0, 0}, NULL);
        if (status != LOCH_OK) {
            assert_int_equal(status, LOCH_E_HOST_MEMORY);
            CHECK_STATUS(lochi_ledger_take(ledger, at(address), 0, &entry), LOCH_E_FOREIGN);
            failures++;
            continue;
        }
        live++;
        if (i % 11 == 0) { /* wrappers ask on their way to a free: it works without memory, only the id is wanting */
            CHECK_OK(lochi_ledger_find(ledger, at(address), &entry));
            assert_int_equal(entry.requested, 40);
            failures += !entry.id;
        }
        if (i % 2) {
            CHECK_OK(lochi_ledger_take(ledger, at(address), 40, &entry));
            live--;
        }
    }
    const loch_stats stats = read_stats(ledger, 0);
    assert_int_equal(stats.blocks, live);
    assert_int_equal(stats.requested_bytes, live * 40);
    return failures;
}

static void use_while_failing(test_round *round, const void *user)
{
    size_t *felt = *(size_t *const *)user;
    lochi_ledger *ledger;
    test_round_begin(round, NULL);
    const loch_status status = lochi_ledger_create(&ledger);
    if (status == LOCH_OK) *felt += run_short_of_memory(ledger) > 0;
    test_round_end(round);
    round->is_felt = status != LOCH_OK;
    if (status != LOCH_OK) {
        assert_int_equal(status, LOCH_E_HOST_MEMORY);
        assert_null(ledger);
    }
    lochi_ledger_destroy(ledger);
    assert_int_equal(test_heap_live(), 0);
}

static void every_host_allocation_fails_in_turn(void **state)
{
    (void)state;
    size_t felt = 0, *user = &felt;
    make_tag("ledger-a");
    CHECK_OK(test_heap_install());
    const test_rounds rounds = test_rounds_run(&test_host_faults, "a ledger", use_while_failing, &user);
    print_message("%zu ledgers were short of memory\n", felt);
    assert_true(rounds.places > 15 && felt > 20);
    CHECK_OK(loch_host_set_allocator(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_addresses_have_codes_of_their_own),
        cmocka_unit_test(entries_come_back_as_they_went_in),
        cmocka_unit_test(random_operations_agree_with_a_plain_array),
        cmocka_unit_test(a_walk_sees_each_block_once),
        cmocka_unit_test(peaks_belong_to_segments),
        cmocka_unit_test(marks_do_not_pile_up),
        cmocka_unit_test(every_host_allocation_fails_in_turn),
    };
    return cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
}
