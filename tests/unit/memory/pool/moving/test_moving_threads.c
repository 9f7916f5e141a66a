/* SPDX-License-Identifier: MIT */
/* Memory that moves while other threads allocate, release and compact. The comment of each test says what goes wrong in
 * other systems. */
#include "unit/memory/pool/crowd_fixture.h"
#include <sched.h>
#include <stdatomic.h>

static void expect_word(worker *w, loch_buffer *buffer)
{
    uint32_t seen[64];
    void *address;
    const size_t bytes = loch_buffer_get_bytes(buffer);
    const uint32_t word = (uint32_t)loch_buffer_get_id(buffer);
    TRY(loch_buffer_pin(buffer, w->stream, &address));
    const loch_copy_options copy = {.size = sizeof copy, .stream = w->stream, .wait = LOCH_WAIT_END};
    TRY(loch_copy_with(seen, (char *)address + bytes - sizeof seen, sizeof seen, &copy));
    TRY(loch_buffer_unpin(buffer, w->stream));
    for (size_t i = 0; i < 64; i++)
        EXPECT(seen[i] == word);
}

/* A new buffer, full of its own number, and known to be. */
static void make_word(worker *w, size_t bytes, loch_buffer **out)
{
    const loch_request request = {.size = sizeof request, .stream = w->stream, .flags = LOCH_ALLOC_MOVABLE};
    const loch_status status = loch_buffer_create(w->crowd->scene->pool, bytes, &request, out);
    if (w->crowd->tolerated & 1u << status) return;
    TRY(status);
    const uint32_t word = (uint32_t)loch_buffer_get_id(*out);
    TRY(loch_buffer_fill(*out, &word, sizeof word, w->stream));
    TRY(loch_stream_sync(w->stream));
}

/* Puts a reference of a buffer into a slot; what was there is looked at and released, the last of it here or
 * elsewhere. */
static void put_in_slot(worker *w, loch_buffer *buffer)
{
    loch_buffer *old = atomic_exchange(&w->crowd->slots[test_random_below(&w->random, SLOTS)], buffer);
    if (old) expect_word(w, old);
    loch_buffer_release(old);
}

/* A buffer of which two slots have a reference each. */
static void share_one(worker *w)
{
    loch_buffer *buffer = NULL;
    make_word(w, 9 * KIB + 4 * test_random_below(&w->random, w->crowd->most_bytes / 4), &buffer);
    if (!buffer || *w->failure) {
        loch_buffer_release(buffer);
        return;
    }
    w->done++;
    put_in_slot(w, loch_buffer_retain(buffer));
    put_in_slot(w, buffer);
}

static void compact_once(worker *w)
{
    const loch_compact_options options = {.size = sizeof options, .stream = w->stream};
    loch_compact_report report = {.size = sizeof report};
    TRY(loch_pool_compact(w->crowd->scene->pool, &options, &report));
    w->done += report.moves;
    atomic_fetch_add(&w->crowd->moves, report.moves);
}

#define GROUNDS (sizeof grounds / sizeof *grounds)

static void job_share_and_compact(worker *w)
{
    for (size_t step = 0; step < 400 && !*w->failure; step++)
        step % 16 == 15 ? compact_once(w) : share_one(w);
}

/* An allocator that looks at its blocks through counted references can have the last one in its hands when another
 * thread lets go of the block: it frees the block itself, under its own lock, and waits for itself for ever. */
static void the_last_reference_goes_while_others_allocate(void **state)
{
    (void)state;
    for (size_t g = 0; g < GROUNDS; g++) {
        pool_bench s = bench_open(grounds[g].device, grounds[g].limit, 0);
        crowd c = crowd_on(&s);
        worker workers[5] = {{NULL}};
        for (size_t i = 0; i < 5; i++)
            workers[i].job = job_share_and_compact;
        crowd_run(&c, workers, 5, 0);
        for (size_t i = 0; i < 5; i++)
            assert_true(workers[i].done > 100);
        bench_close(&s);
    }
}

/* Goes on until a compaction has moved something: on a busy machine that thread may begin late. */
static void job_share(worker *w)
{
    for (size_t step = 0; step < 500 || (step < 50000 && !atomic_load(&w->crowd->moves)); step++) {
        if (*w->failure) return;
        share_one(w);
    }
}

static void job_compact_until_told(worker *w)
{
    while (!atomic_load(&w->crowd->is_over) && !*w->failure)
        compact_once(w);
}

/* A compaction that finds a block whose last reference is just being dropped takes that for a broken list, and
 * fails. */
static void a_block_is_released_during_a_compaction(void **state)
{
    (void)state;
    for (size_t g = 0; g < GROUNDS; g++) {
        pool_bench s = bench_open(grounds[g].device, grounds[g].limit, 0);
        crowd c = crowd_on(&s);
        worker workers[4] = {
            {.job = job_share}, {.job = job_share}, {.job = job_share}, {.job = job_compact_until_told}};
        crowd_run(&c, workers, 4, 1);
        assert_true(workers[3].done > 0); /* there was something to move */
        bench_close(&s);
    }
}

/* The host writes patterns where it can; elsewhere kernels do, and the checker sees two that write the same memory. */
static void raw_write(worker *w, const raw_block *block)
{
    if (loch_buffer_is_on_host(w->crowd->still[0])) {
        test_pattern_write(block->address, block->bytes, block->seed);
        return;
    }
    const loch_sim_range range = {block->address, block->bytes};
    const loch_sim_kernel kernel = {.size = sizeof kernel, .writes = &range, .writes_count = 1, .duration_ns = 3000};
    TRY(loch_sim_launch(w->stream, &kernel));
}

static void raw_free(worker *w, raw_block *block)
{
    if (loch_buffer_is_on_host(w->crowd->still[0]))
        EXPECT(test_pattern_differs(block->address, block->bytes, block->seed) == block->bytes);
    TRY(loch_free(w->crowd->scene->pool, block->address)); /* made by another thread, perhaps */
    w->done++;
    free(block);
}

static void raw_exchange(worker *w)
{
    static const size_t sizes[] = {100, 3000, 20000, 20000, 130000}; /* few, so that addresses come again */
    raw_block *block = malloc(sizeof *block);
    EXPECT(block);
    *block = (raw_block){.bytes = sizes[test_random_below(&w->random, 5)], .seed = test_random_next(&w->random)};
    const loch_request request = {.size = sizeof request, .bytes = block->bytes, .stream = w->stream};
    TRY(loch_allocator_alloc(w->crowd->scene->pool, &request, &block->address));
    raw_write(w, block);
    raw_block *old = atomic_exchange(&raw_slots[test_random_below(&w->random, SLOTS)], block);
    if (old) raw_free(w, old);
}

static void job_raw(worker *w)
{
    for (size_t step = 0; step < 2000 && !*w->failure; step++)
        raw_exchange(w);
}

/* A free that looks for "the entry at this address, or the first that has ended" can take the record of a new block at
 * the address of an old one: the new block is handed out twice. */
static void a_free_takes_no_record_of_another(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu", "sim:256MiB"};
    for (size_t d = 0; d < 2; d++) {
        pool_bench s = bench_open(devices[d], 32 * MIB, 0);
        crowd c = crowd_on(&s);
        c.still[0] = make(&s, 1, NULL);
        worker workers[4] = {{.job = job_raw}, {.job = job_raw}, {.job = job_raw}, {.job = job_raw}};
        crowd_run(&c, workers, 4, 0);
        family_expect_whole(&s.pool, 1); /* with what is in the slots: no two share a byte */
        worker *w = &workers[0];
        for (size_t i = 0; i < SLOTS; i++) {
            raw_block *left = atomic_exchange(&raw_slots[i], NULL);
            if (left) raw_free(w, left);
            if (*w->failure) fail_msg("%s", w->failure);
        }
        loch_buffer_release(c.still[0]);
        bench_close(&s);
    }
}

static uint64_t generations_of(const crowd *c)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < STILL; i++)
        sum += loch_buffer_get_generation(c->still[i]);
    return sum;
}

/* While moving is forbidden nothing moves, whatever the others do. */
static void job_forbid_until_told(worker *w)
{
    const crowd *c = w->crowd;
    do {
        TRY(loch_pool_forbid_moving(c->scene->pool));
        const uint64_t before = generations_of(c);
        for (size_t i = 0; i < 20; i++) {
            sched_yield();
            EXPECT(generations_of(c) == before);
        }
        TRY(loch_pool_allow_moving(c->scene->pool));
        w->done++;
    } while (!atomic_load(&c->is_over));
}

static void job_compact_if_allowed(worker *w)
{
    const loch_compact_options options = {.size = sizeof options, .stream = w->stream};
    while (!atomic_load(&w->crowd->is_over) && !*w->failure) {
        const loch_status status = loch_pool_compact(w->crowd->scene->pool, &options, NULL);
        if (status != LOCH_E_MOVING_FORBIDDEN) TRY(status);
        w->done += status == LOCH_OK;
        sched_yield();
    }
}

static void job_read_figures(worker *w)
{
    loch_allocator *pool = w->crowd->scene->pool;
    char text[2000];
    do {
        loch_pool_info info = {.size = sizeof info};
        loch_stats stats = {.size = sizeof stats};
        loch_compact_report report = {.size = sizeof report};
        TRY(loch_pool_get_info(pool, &info));
        EXPECT(info.used_bytes + info.free_bytes + info.thread_bytes <= info.reserved_bytes);
        TRY(loch_allocator_get_stats(pool, &stats));
        EXPECT(stats.allocs - stats.frees == stats.blocks);
        EXPECT(test_pool_print(pool, text, sizeof text) > 0);
        TRY(loch_pool_plan_compact(pool, NULL, NULL, NULL, &report));
        w->done++;
    } while (!atomic_load(&w->crowd->is_over));
}

/* An explicit compaction without the lock, which does not heed that moving was forbidden, and figures that are read
 * beside it. */
static void compaction_is_locked_and_can_be_forbidden(void **state)
{
    (void)state;
    for (size_t g = 0; g < GROUNDS; g++) {
        pool_bench s = bench_open(grounds[g].device, grounds[g].limit, 0);
        crowd c = crowd_on(&s);
        loch_buffer *holes[2 * STILL];
        c.tolerated |= TEST_SET(MOVING_FORBIDDEN);
        atomic_store(&c.moves, 1); /* those that share do not wait for a compaction: none may be allowed */
        c.most_bytes = 60 * KIB;
        make_holes(&s, holes, 2 * STILL, 70 * KIB);
        for (size_t i = 0; i < STILL; i++)
            c.still[i] = holes[2 * i + 1];
        worker workers[6] = {{.job = job_share},
                             {.job = job_share},
                             {.job = job_forbid_until_told},
                             {.job = job_forbid_until_told},
                             {.job = job_compact_if_allowed},
                             {.job = job_read_figures}};
        crowd_run(&c, workers, 6, 4);
        for (size_t i = 0; i < 6; i++)
            assert_true(workers[i].done > 0 || i == 4);
        CHECK_OK(loch_pool_compact(s.pool, NULL, NULL)); /* moving is not forbidden any more */
        for (size_t i = 0; i < STILL; i++)
            loch_buffer_release(c.still[i]);
        bench_close(&s);
    }
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        TENSOR_TEST(the_last_reference_goes_while_others_allocate),
        TENSOR_TEST(a_block_is_released_during_a_compaction),
        TENSOR_TEST(a_free_takes_no_record_of_another),
        TENSOR_TEST(compaction_is_locked_and_can_be_forbidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
