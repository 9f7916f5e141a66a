/* SPDX-License-Identifier: MIT */
/* The guard wrapper: red zones, poison, and everything else as if it were not there. */
#include "memory/allocator_state.h"
#include "wrap_fixture.h"

static loch_allocator *guard_around(loch_allocator *wrapped, size_t zone_bytes)
{
    const loch_redzone_options options = {.size = sizeof options, .red_zone_bytes = zone_bytes};
    loch_allocator *guard;
    CHECK_OK(loch_redzone_create(wrapped, "redzone", &options, &guard));
    loch_allocator_release(wrapped);
    return guard;
}

static loch_allocator *guard_direct(const test_bed *bed)
{
    return guard_around(wrap_direct(bed), 0);
}

static void zones_are_checked_at_free(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *guard = guard_around(wrap_direct(bed), 1500);
    loch_stream *stream = wrap_stream(bed);
    loch_tag tag;
    CHECK_OK(loch_tag_create("victim", &tag));
    const ptrdiff_t places[] = {-1, -1500, 777, 777 + 1499};
    for (size_t i = 0; i < 4; i++) {
        const loch_request request = {.size = sizeof request, .bytes = 777, .stream = stream, .tag = tag};
        void *block, *good;
        CHECK_OK(loch_allocator_alloc(guard, &request, &block));
        CHECK_OK(loch_allocator_alloc(guard, &request, &good));
        CHECK_OK(loch_stream_sync(stream));
        test_bed_put(bed, good, 777, i);
        test_bed_expect(bed, good, 777, i);
        wrap_poke(stream, (char *)block + places[i], 0);
        CHECK_OK(loch_free(guard, good));
        loch_error_clear();
        const loch_status status = loch_free(guard, block);
        assert_int_equal(status, bed->has_data ? LOCH_E_CORRUPT : LOCH_OK);
        if (bed->has_data) {
            char words[64];
            snprintf(words, sizeof words, "777 bytes at %p, tag victim", block);
            assert_int_equal(loch_error_get()->status, LOCH_E_CORRUPT);
            assert_non_null(strstr(loch_error_get()->sentence, words));
            assert_non_null(strstr(loch_error_get()->sentence, places[i] < 0 ? "in front of" : "behind its end"));
        }
        assert_int_equal(wrap_stats(guard).blocks, 0);
        assert_int_equal(wrap_stats(loch_allocator_get_wrapped(guard)).blocks, 0); /* freed anyway */
        CHECK_FAILS(loch_free(guard, block), DOUBLE_FREE);
    }
    loch_stream_close(stream);
    loch_allocator_release(guard);
}

static void live_blocks_are_checked_on_demand(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *guard = guard_direct(bed);
    loch_stream *stream = wrap_stream(bed);
    void *blocks[5];
    CHECK_OK(loch_redzone_check(guard));
    for (size_t i = 0; i < 5; i++)
        blocks[i] = wrap_alloc_on(guard, 100 * (i + 1), i % 2 ? stream : NULL);
    CHECK_OK(loch_redzone_check(guard));
    wrap_poke(stream, (char *)blocks[3] + 400, 0xfc);
    assert_int_equal(loch_redzone_check(guard), bed->has_data ? LOCH_E_CORRUPT : LOCH_OK);
    if (bed->has_data) assert_non_null(strstr(loch_error_get()->sentence, "of 400 bytes"));
    wrap_poke(stream, (char *)blocks[3] + 400, 0xfd); /* as it was: nothing is remembered */
    CHECK_OK(loch_redzone_check(guard));
    for (size_t i = 0; i < 5; i++)
        CHECK_OK(loch_free(guard, blocks[i]));
    CHECK_OK(loch_redzone_check(guard));
    CHECK_FAILS(loch_redzone_check(NULL), INVALID);
    CHECK_FAILS(loch_redzone_check(loch_allocator_get_wrapped(guard)), INVALID);
    loch_stream_close(stream);
    loch_allocator_release(guard);
}

static void new_and_freed_blocks_are_poisoned(void **state)
{
    const test_bed *bed = wrap_bed(state);
    for (int own = 0; own < 2; own++) {
        wrap_plain plain;
        loch_allocator *wrapped = wrap_plain_create(bed, &plain, LOCH_TRAIT_THREAD_SAFE), *guard;
        const loch_redzone_options options = {
            .size = sizeof options, .poison_new = own ? 0x12 : 0, .poison_freed = own ? 0x34 : 0};
        CHECK_OK(loch_redzone_create(wrapped, NULL, &options, &guard));
        loch_allocator_release(wrapped);
        assert_string_equal(loch_allocator_get_name(guard), "plain");
        assert_string_equal(guard->ops.kind, "redzone");
        char *block = wrap_alloc(guard, 5000);
        test_bed_expect_byte(bed, block, 5000, own ? 0x12 : 0xcd);
        plain.keeps = true;
        CHECK_OK(loch_free(guard, block));
        assert_true((char *)plain.kept < block);
        test_bed_expect_byte(bed, block, 5000, own ? 0x34 : 0xdd);
        CHECK_OK(loch_raw_free(plain.kept));
        loch_allocator_release(guard);
        assert_true(plain.is_destroyed);
    }
}

/* The wrapped allocator's zeroes would lie under the poison. */
static void zeroed_blocks_are_zero(void **state)
{
    const test_bed *bed = wrap_bed(state);
    wrap_plain plain;
    loch_allocator *wrapped =
        wrap_plain_create(bed, &plain, LOCH_TRAIT_THREAD_SAFE | LOCH_TRAIT_ZEROES | LOCH_TRAIT_STREAM_ORDERED);
    loch_allocator *guard = guard_around(wrapped, 0), *outer;
    CHECK_OK(loch_limit_create(guard, NULL, NULL, &outer));
    const uint32_t traits = loch_allocator_get_traits(outer);
    assert_int_equal(traits, LOCH_TRAIT_THREAD_SAFE | LOCH_TRAIT_TRACKS_SIZES);
    const loch_request request = {.size = sizeof request, .bytes = 3000, .flags = LOCH_ALLOC_ZEROED};
    void *block;
    CHECK_OK(loch_allocator_alloc(outer, &request, &block));
    test_bed_expect_byte(bed, block, 3000, 0);
    CHECK_OK(loch_free(outer, block));
    loch_allocator_release(outer);
    loch_allocator_release(guard);
}

static loch_status sum_blocks(const loch_block *block, void *user)
{
    *(size_t *)user += block->requested_bytes;
    return LOCH_OK;
}

static void sizes_are_the_users(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *guard = guard_direct(bed), *direct = loch_allocator_get_wrapped(guard);
    loch_tag tag;
    CHECK_OK(loch_tag_create("guarded", &tag));
    const loch_request request = {.size = sizeof request, .bytes = 500, .tag = tag, .alignment = 256};
    void *a, *b = wrap_alloc(guard, 1500);
    CHECK_OK(loch_allocator_alloc(guard, &request, &a));
    assert_int_equal((uintptr_t)a % 256, 0);
    loch_block found = {.size = sizeof found};
    CHECK_OK(loch_allocator_find(guard, a, &found));
    assert_ptr_equal(found.address, a);
    assert_int_equal(found.requested_bytes, 500);
    assert_true(found.allocated_bytes >= 500 + 256 + 64);
    assert_int_equal(found.tag, tag);
    assert_true(found.id != 0);
    size_t sum = 0;
    CHECK_OK(loch_allocator_walk(guard, sum_blocks, &sum));
    assert_int_equal(sum, 2000);
    loch_stats stats = wrap_stats(guard), inner = wrap_stats(direct);
    assert_int_equal(stats.requested_bytes, 2000);
    assert_int_equal(stats.peak_requested_bytes, 2000);
    assert_int_equal(stats.largest_bytes, 1500);
    assert_int_equal(stats.allocated_bytes, inner.allocated_bytes);
    assert_int_equal(stats.reserved_bytes, inner.reserved_bytes); /* forwarded */
    loch_stats of_tag = {.size = sizeof of_tag};
    CHECK_OK(loch_allocator_get_tag_stats(guard, tag, &of_tag));
    assert_int_equal(of_tag.requested_bytes, 500);

    CHECK_FAILS(loch_free(guard, (char *)a + 1), INTERIOR);
    CHECK_FAILS(loch_free(guard, (char *)a - 1), INTERIOR);
    CHECK_FAILS(loch_free(guard, (char *)a - 256), INTERIOR); /* what the wrapped allocator handed out */
    CHECK_FAILS(loch_free(guard, &found), FOREIGN);
    CHECK_FAILS(loch_allocator_free_sized(guard, a, 501), INVALID);
    CHECK_FAILS(loch_allocator_record_use(guard, (char *)a + 4, NULL), INTERIOR);
    CHECK_OK(loch_allocator_free_sized(guard, b, 1500));
    CHECK_OK(loch_allocator_reset_stats(guard));
    stats = wrap_stats(guard);
    assert_int_equal(stats.peak_requested_bytes, 500);
    assert_int_equal(stats.peak_reserved_bytes, stats.reserved_bytes); /* the wrapped allocator's segment ended too */
    CHECK_OK(loch_free(guard, a));
    loch_allocator_release(guard);
}

static void arguments_are_checked(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *guard = TEST_UNTOUCHED, *direct = wrap_direct(bed);
    CHECK_FAILS(loch_redzone_create(NULL, NULL, NULL, &guard), INVALID);
    assert_null(guard);
    CHECK_FAILS(loch_redzone_create(direct, NULL, NULL, NULL), INVALID);
    loch_redzone_options options = {.size = 3};
    CHECK_FAILS(loch_redzone_create(direct, NULL, &options, &guard), INVALID);
    options = (loch_redzone_options){.size = sizeof options, .red_zone_bytes = SIZE_MAX / 2};
    CHECK_FAILS(loch_redzone_create(direct, NULL, &options, &guard), INVALID);
    guard = guard_around(direct, 0);
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(guard, ((size_t)1 << 47) - 1, &block), OVERFLOW);
    assert_null(block);
    assert_int_equal(wrap_stats(guard).failures, 1);
    for (size_t alignment = 1; alignment <= 2 * TEST_MIB; alignment *= 2) {
        const loch_request request = {.size = sizeof request, .bytes = 64, .alignment = alignment};
        CHECK_OK(loch_allocator_alloc(guard, &request, &block));
        assert_int_equal((uintptr_t)block & (alignment - 1), 0);
        CHECK_OK(loch_free(guard, block));
    }
    loch_allocator_release(guard);
}

/* --- streams --- */

static void free_waits_for_the_streams_of_the_block(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *guard = guard_direct(bed);
    loch_stream *of_alloc = wrap_stream(bed), *used = wrap_stream(bed), *of_free = wrap_stream(bed);
    loch_stream *unrelated = wrap_stream(bed);
    char *block = wrap_alloc_on(guard, 3000, of_alloc), *other = wrap_alloc_on(guard, 3000, unrelated);
    CHECK_OK(loch_stream_sync(of_alloc));
    wrap_kernel(bed, of_alloc, block, 1000);
    wrap_kernel(bed, used, block + 1000, 1000);
    wrap_kernel(bed, of_free, block + 2000, 1000);
    wrap_kernel(bed, unrelated, other, 3000);
    wrap_kernel(bed, unrelated, other, 3000);
    CHECK_OK(loch_allocator_record_use(guard, block, used));
    CHECK_OK(loch_redzone_check(guard)); /* in order behind all of them */
    wrap_kernel(bed, used, block + 1000, 1000);
    wrap_kernel(bed, unrelated, other, 3000);
    wrap_kernel(bed, unrelated, other, 3000);
    CHECK_OK(loch_allocator_free_on(guard, block, of_free));
    if (bed->is_stepped) {
        CHECK_OK(loch_stream_query(used));
        CHECK_STATUS(loch_stream_query(unrelated), LOCH_E_BUSY);
    }
    CHECK_OK(loch_free(guard, other));
    loch_stream_close(of_alloc);
    loch_stream_close(used);
    loch_stream_close(of_free);
    loch_stream_close(unrelated);
    loch_allocator_release(guard);
}

static void a_block_is_freed_after_its_streams_have_ended(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *guard = guard_direct(bed);
    loch_stream *of_alloc = wrap_stream(bed), *used = wrap_stream(bed);
    char *a = wrap_alloc_on(guard, 2000, of_alloc), *b = wrap_alloc(guard, 2000);
    CHECK_OK(loch_device_sync(bed->device));
    wrap_kernel(bed, of_alloc, a, 2000);
    wrap_kernel(bed, used, b, 2000);
    CHECK_OK(loch_allocator_record_use(guard, b, used));
    loch_stream_close(of_alloc);
    loch_stream_close(used);
    CHECK_OK(loch_redzone_check(guard));
    CHECK_OK(loch_free(guard, a));
    CHECK_OK(loch_free(guard, b));
    loch_allocator_release(guard);
}

static void what_cannot_be_waited_for_stays(void **state)
{
    const test_bed *bed = wrap_bed(state);
    if (!bed->is_sim) return;
    loch_allocator *guard = guard_direct(bed);
    void *block = wrap_alloc(guard, 1000);
    const loch_sim_fault fault = {.size = sizeof fault, .mode = LOCH_SIM_FAULT_FOREVER};
    CHECK_OK(loch_sim_set_fault(bed->device, &fault));
    CHECK_FAILS(loch_free(guard, block), DRIVER);
    CHECK_FAILS(loch_redzone_check(guard), DRIVER);
    CHECK_OK(loch_sim_set_fault(bed->device, NULL));
    assert_int_equal(wrap_stats(guard).blocks, 1);
    test_bed_expect_byte(bed, block, 1000, 0xcd); /* as it was */
    CHECK_OK(loch_free(guard, block));
    loch_allocator_release(guard);
}

/* --- stacks --- */

/* A block that was written around is freed: what other wrappers know of it has to go as well, above and below. */
static void a_corrupt_block_is_freed_in_every_layer(void **state)
{
    const test_bed *bed = wrap_bed(state);
    wrap_plain plain;
    loch_allocator *base = wrap_plain_create(bed, &plain, 0);
    loch_allocator *inner = guard_around(base, 128), *locked, *limit, *fault, *logging;
    const loch_limit_options options = {.size = sizeof options, .hard_bytes = 100};
    CHECK_OK(loch_locked_create(inner, NULL, &locked));
    CHECK_OK(loch_limit_create(locked, NULL, &options, &limit));
    CHECK_OK(loch_fault_create(limit, NULL, NULL, &fault));
    CHECK_OK(loch_logging_create(fault, NULL, NULL, &logging));
    loch_allocator *outer = guard_around(logging, 64);
    for (size_t round = 0; round < 3; round++) {
        void *block = NULL;
        CHECK_FAILS(loch_alloc(outer, 100, &block), LIMIT); /* the outer zones count */
        CHECK_OK(loch_limit_set(limit, 10000, 0));
        block = wrap_alloc(outer, 100);
        loch_block found = {.size = sizeof found};
        CHECK_OK(loch_allocator_find(outer, block, &found));
        loch_stream *stream = loch_stream_get_default(bed->device);
        wrap_poke(stream, (char *)block - 1, 0); /* the outer zone */
        const loch_request direct = {.size = sizeof direct, .bytes = 50};
        void *below;
        CHECK_OK(loch_allocator_alloc(limit, &direct, &below));
        wrap_poke(stream, (char *)below + 50, 0); /* the inner zone */
        assert_int_equal(loch_free(outer, block), bed->has_data ? LOCH_E_CORRUPT : LOCH_OK);
        assert_int_equal(loch_free(limit, below), bed->has_data ? LOCH_E_CORRUPT : LOCH_OK);
        CHECK_FAILS(loch_free(limit, below), DOUBLE_FREE);
        assert_int_equal(plain.allocs, plain.frees);
        CHECK_OK(loch_limit_set(limit, 100, 0));
        below = wrap_alloc(limit, 100); /* nothing is left in the limit's count */
        CHECK_OK(loch_free(limit, below));
    }
    loch_allocator_release(outer);
    loch_allocator_release(fault);
    loch_allocator_release(limit);
    loch_allocator_release(locked);
    loch_allocator_release(inner);
    assert_true(plain.is_destroyed);
}

static void a_failure_below_is_passed_on(void **state)
{
    const test_bed *bed = wrap_bed(state);
    loch_allocator *direct = wrap_direct(bed), *fault;
    const loch_fault_options options = {.size = sizeof options, .count = 1, .status = LOCH_E_FRAGMENTED};
    CHECK_OK(loch_fault_create(direct, NULL, &options, &fault));
    loch_allocator_release(direct);
    loch_allocator *guard = guard_around(fault, 0);
    void *block = TEST_UNTOUCHED;
    CHECK_FAILS(loch_alloc(guard, 10, &block), FRAGMENTED);
    assert_null(block);
    const loch_stats stats = wrap_stats(guard);
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.failures, 1);
    if (bed->is_sim) { /* the zones cannot be filled: the block goes back */
        const loch_sim_fault broken = {.size = sizeof broken, .call = "fill"};
        CHECK_OK(loch_sim_set_fault(bed->device, &broken));
        CHECK_FAILS(loch_alloc(guard, 10, &block), DRIVER);
        CHECK_OK(loch_sim_set_fault(bed->device, NULL));
        assert_int_equal(wrap_stats(guard).reserved_bytes, 0);
    }
    block = wrap_alloc(guard, 10);
    CHECK_OK(loch_free(guard, block));
    loch_allocator_release(guard);
}

/* --- threads --- */

typedef struct worker {
    loch_allocator *guard;
    loch_stream *stream;
    uint64_t seed;
    bool checks;
    const char *failed;
} worker;

static void *work(void *user)
{
    worker *it = user;
    test_random random = {it->seed};
    void *blocks[8] = {NULL};
    for (int round = 0; round < 300; round++) {
        const size_t at = test_random_below(&random, 8);
        if (it->checks && round % 20 == 0 && loch_redzone_check(it->guard) != LOCH_OK) it->failed = "check";
        if (blocks[at]) {
            if (loch_free(it->guard, blocks[at]) != LOCH_OK) it->failed = "free";
            blocks[at] = NULL;
            continue;
        }
        const loch_request request = {
            .size = sizeof request, .bytes = 1 + test_random_below(&random, 2000), .stream = it->stream};
        if (loch_allocator_alloc(it->guard, &request, &blocks[at]) != LOCH_OK) it->failed = "alloc";
        if (loch_allocator_record_use(it->guard, blocks[at], NULL) != LOCH_OK) it->failed = "record_use";
    }
    for (size_t i = 0; i < 8; i++)
        if (loch_free(it->guard, blocks[i]) != LOCH_OK) it->failed = "free";
    return NULL;
}

static void eight_threads_keep_blocks_apart(void **state)
{
    enum { THREADS = 8 };
    const test_bed *bed = wrap_bed(state);
    const uint64_t seed = test_seed(53);
    loch_allocator *guard = guard_direct(bed);
    worker workers[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        workers[i] = (worker){.guard = guard, .stream = wrap_stream(bed), .seed = seed + i, .checks = i < 2};
    TEST_THREADS_RUN(work, workers);
    for (size_t i = 0; i < THREADS; i++)
        if (workers[i].failed) fail_msg("thread %zu: %s", i, workers[i].failed);
    for (size_t i = 0; i < THREADS; i++)
        loch_stream_close(workers[i].stream);
    const loch_stats stats = wrap_stats(guard);
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.requested_bytes, 0);
    loch_allocator_release(guard);
}

/* --- failing host allocations --- */

static loch_status create(loch_allocator *wrapped, loch_allocator **out)
{
    const loch_redzone_options options = {.size = sizeof options, .red_zone_bytes = 3000};
    return loch_redzone_create(wrapped, NULL, &options, out);
}

static void a_guard_survives_failing_host_memory(void **state)
{
    wrap_sweep(state, (wrap_subject){.create = create, .use = loch_redzone_check});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zones_are_checked_at_free),
        cmocka_unit_test(live_blocks_are_checked_on_demand),
        cmocka_unit_test(new_and_freed_blocks_are_poisoned),
        cmocka_unit_test(zeroed_blocks_are_zero),
        cmocka_unit_test(sizes_are_the_users),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(free_waits_for_the_streams_of_the_block),
        cmocka_unit_test(a_block_is_freed_after_its_streams_have_ended),
        cmocka_unit_test(what_cannot_be_waited_for_stays),
        cmocka_unit_test(a_corrupt_block_is_freed_in_every_layer),
        cmocka_unit_test(a_failure_below_is_passed_on),
        cmocka_unit_test(eight_threads_keep_blocks_apart),
        cmocka_unit_test(a_guard_survives_failing_host_memory),
    };
    return WRAP_RUN(tests);
}
