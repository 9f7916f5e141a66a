/* SPDX-License-Identifier: MIT */
/* Pools of pinned memory: segments have the sizes of requests, small blocks share them, and free segments make way for
 * requests that they do not fit. */
#include "pool_fixture.h"

#define MIB TEST_MIB
#define GIB ((size_t)1 << 30)

static pool_bench open_pinned(void)
{
    const loch_pool_options options = {.size = sizeof options, .kind = LOCH_MEMORY_PINNED};
    return pool_bench_open("sim:64GiB", &options);
}

/* The bytes held at most, for each requested byte at most. */
static double held_part(loch_allocator *pool)
{
    return (double)pool_info(pool).peak_reserved_bytes / (double)pool_stats(pool).peak_requested_bytes;
}

static void expect_held(loch_allocator *pool, double most)
{
    const double part = held_part(pool);
    if (part > most) fail_msg("the pool held %.4f of what was requested, not %.4f at most", part, most);
}

/* --- exact sizes --- */

static void one_block_just_above_a_power_of_two_takes_its_size(void **state)
{
    (void)state;
    static const size_t more[] = {1, 512, 4096, 65537};
    for (size_t bytes = MIB; bytes <= 4 * GIB; bytes *= 2)
        for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
            pool_bench bench = open_pinned();
            void *block = pool_alloc(bench.pool, bytes + more[i]);
            pool_expect_whole(bench.pool);
            expect_held(bench.pool, 1.02);
            CHECK_OK(loch_free(bench.pool, block));
            pool_bench_close(&bench);
        }
}

static void many_blocks_of_one_size_take_their_sum(void **state)
{
    (void)state;
    for (size_t bytes = MIB; bytes <= 64 * MIB; bytes *= 2) {
        pool_bench bench = open_pinned();
        void *blocks[400];
        for (size_t i = 0; i < 400; i++) {
            blocks[i] = pool_alloc(bench.pool, bytes + 1);
            expect_held(bench.pool, 1.02);
        }
        pool_expect_whole(bench.pool);
        for (size_t i = 0; i < 400; i++)
            CHECK_OK(loch_free(bench.pool, blocks[i]));
        pool_bench_close(&bench);
    }
}

static void mixed_sizes_at_one_time_take_their_sum(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        pool_bench bench = open_pinned();
        test_random random = {seed};
        void *blocks[200];
        for (size_t i = 0; i < 200; i++)
            blocks[i] =
                pool_alloc(bench.pool, (MIB << test_random_below(&random, 13)) + 1 + test_random_below(&random, 8192));
        pool_expect_whole(bench.pool);
        expect_held(bench.pool, 1.02);
        for (size_t i = 0; i < 200; i++)
            CHECK_OK(loch_free(bench.pool, blocks[i]));
        pool_bench_close(&bench);
    }
}

/* --- other sizes later --- */

/* Each size in turn, one block at a time: what is free makes way for a larger one, and serves a smaller one. */
static void sizes_one_after_the_other_take_the_largest(void **state)
{
    (void)state;
    pool_bench bench = open_pinned();
    uint64_t created[3];
    for (int round = 0; round < 3; round++) {
        for (size_t bytes = MIB; bytes <= 4 * GIB; bytes *= 2) {
            void *block = pool_alloc_on(bench.pool, bytes + 1, bench.a);
            expect_held(bench.pool, 1.02);
            CHECK_OK(loch_free(bench.pool, block));
        }
        pool_expect_whole(bench.pool);
        created[round] = pool_info(bench.pool).handles_created;
    }
    /* The first round pins each size. The second one finds the largest segment, and has a few small ones of its own. */
    assert_int_equal(created[0], 13);
    assert_true(created[1] - created[0] <= 6);
    assert_int_equal(created[2], created[1]);
    pool_bench_close(&bench);
}

/* Two groups of sizes that alternate pin once, and not at every change. */
static void sizes_that_alternate_do_not_pin_again_and_again(void **state)
{
    (void)state;
    pool_bench bench = open_pinned();
    uint64_t after_first = 0;
    for (int round = 0; round < 20; round++) {
        void *first = pool_alloc(bench.pool, 60 * MIB + 1), *second = pool_alloc(bench.pool, 60 * MIB + 1);
        CHECK_OK(loch_free(bench.pool, first));
        CHECK_OK(loch_free(bench.pool, second));
        void *large = pool_alloc(bench.pool, 100 * MIB + 1);
        CHECK_OK(loch_free(bench.pool, large));
        if (round == 2) after_first = pool_info(bench.pool).handles_created;
    }
    assert_int_equal(pool_info(bench.pool).handles_created, after_first);
    pool_bench_close(&bench);
}

/* Batches whose sizes differ a little, two or three of them at a time, as a loader of data makes them. */
static void batches_of_varying_sizes_settle(void **state)
{
    (void)state;
    pool_bench bench = open_pinned();
    test_random random = {7};
    void *batches[3] = {NULL};
    size_t created = 0;
    for (unsigned i = 0; i < 2000; i++) {
        CHECK_OK(loch_free(bench.pool, batches[i % 3]));
        batches[i % 3] = pool_alloc(bench.pool, 90 * MIB + test_random_below(&random, 20) * MIB);
        if (i == 999) created = (size_t)pool_info(bench.pool).handles_created;
    }
    expect_held(bench.pool, 1.1);
    assert_true(pool_info(bench.pool).handles_created - created <= 3); /* all of them have the largest size by then */
    for (size_t i = 0; i < 3; i++)
        CHECK_OK(loch_free(bench.pool, batches[i]));
    pool_bench_close(&bench);
}

/* After a trim only what is in use then counts for what the pool may hold. */
static void a_trim_forgets_the_most_in_use(void **state)
{
    (void)state;
    pool_bench bench = open_pinned();
    void *large = pool_alloc(bench.pool, GIB);
    CHECK_OK(loch_free(bench.pool, large));
    (void)pool_trim(bench.pool, 0);
    for (size_t bytes = MIB; bytes <= 64 * MIB; bytes *= 2) {
        void *block = pool_alloc(bench.pool, bytes + 1);
        CHECK_OK(loch_free(bench.pool, block));
    }
    assert_true(pool_info(bench.pool).reserved_bytes <= 66 * MIB);
    pool_bench_close(&bench);
}

/* A few small blocks that stay do not take a large free segment apart: its size is free in one piece later. */
static void small_blocks_leave_large_free_segments_whole(void **state)
{
    (void)state;
    pool_bench bench = open_pinned();
    void *small[8], *large = pool_alloc(bench.pool, GIB + 1);
    CHECK_OK(loch_free(bench.pool, large));
    for (size_t i = 0; i < 8; i++)
        small[i] = pool_alloc(bench.pool, i % 2 ? 100 : MIB + 1);
    large = pool_alloc(bench.pool, GIB + 1);
    expect_held(bench.pool, 1.02);
    CHECK_OK(loch_free(bench.pool, large));
    for (size_t i = 0; i < 8; i++)
        CHECK_OK(loch_free(bench.pool, small[i]));
    pool_bench_close(&bench);
}

/* Many small blocks are cut out of a large free segment. */
static void many_small_blocks_use_a_large_free_segment(void **state)
{
    (void)state;
    pool_bench bench = open_pinned();
    void *small[900], *large = pool_alloc(bench.pool, GIB);
    CHECK_OK(loch_free(bench.pool, large));
    for (size_t i = 0; i < 900; i++)
        small[i] = pool_alloc(bench.pool, MIB);
    expect_held(bench.pool, 1.02);
    for (size_t i = 0; i < 900; i++)
        CHECK_OK(loch_free(bench.pool, small[i]));
    pool_bench_close(&bench);
}

/* --- small blocks, limits, streams --- */

static void small_blocks_share_segments(void **state)
{
    (void)state;
    pool_bench bench = open_pinned();
    void *blocks[3000];
    for (size_t i = 0; i < 3000; i++)
        blocks[i] = pool_alloc(bench.pool, i % 3 ? 100000 : 300);
    const loch_pool_info info = pool_info(bench.pool);
    assert_true(info.handles <= info.reserved_bytes / MIB);
    expect_held(bench.pool, 1.06);
    pool_expect_whole(bench.pool);
    for (size_t i = 0; i < 3000; i++)
        CHECK_OK(loch_free(bench.pool, blocks[i]));
    pool_bench_close(&bench);
}

static void a_limit_holds_to_the_page(void **state)
{
    (void)state;
    const loch_pool_options options = {
        .size = sizeof options, .kind = LOCH_MEMORY_PINNED, .limit_bytes = 5 * MIB + 16384};
    pool_bench bench = pool_bench_open("sim:1GiB", &options);
    void *first = pool_alloc(bench.pool, 3 * MIB + 1), *second = pool_alloc(bench.pool, 2 * MIB + 1), *third;
    CHECK_FAILS(pool_try_alloc(bench.pool, MIB, 0, NULL, &third), LIMIT);
    assert_true(pool_info(bench.pool).reserved_bytes <= options.limit_bytes);
    CHECK_OK(loch_free(bench.pool, first));
    third = pool_alloc(bench.pool, 3 * MIB + 4096); /* does not fit the free segment, which makes way */
    CHECK_OK(loch_free(bench.pool, second));
    CHECK_OK(loch_free(bench.pool, third));
    pool_bench_close(&bench);
}

/* Memory that a stream still uses neither goes back nor serves another stream. */
static void segments_that_streams_use_do_not_make_way(void **state)
{
    (void)state;
    pool_bench bench = open_pinned();
    void *block = pool_alloc_on(bench.pool, 8 * MIB, bench.a);
    CHECK_OK(loch_allocator_record_use(bench.pool, block, bench.b));
    CHECK_OK(sim_busy(bench.b, 1000000000));
    CHECK_OK(sim_reads(bench.b, block, 8 * MIB));
    CHECK_OK(loch_free(bench.pool, block));
    void *larger = pool_alloc_on(bench.pool, 9 * MIB, bench.a);
    assert_int_equal(pool_info(bench.pool).handles, 2);
    CHECK_OK(sim_writes(bench.a, larger, 9 * MIB));
    CHECK_OK(loch_free(bench.pool, larger));
    sim_expect_order(bench.device);
    pool_bench_close(&bench);
}

/* A segment of a driver that does not align costs a cell more. The pool takes few of them. */
static void a_driver_that_does_not_align_gets_few_calls(void **state)
{
    (void)state;
    pool_bench bench = open_pinned();
    const loch_sim_fault refusal = {.size = sizeof refusal, .call = "pinned_alloc", .status = LOCH_E_UNSUPPORTED};
    CHECK_OK(loch_sim_set_fault(bench.device, &refusal)); /* of the first, aligned block */
    void *blocks[200];
    for (size_t i = 0; i < 200; i++)
        blocks[i] = pool_alloc(bench.pool, MIB + 1);
    pool_expect_whole(bench.pool);
    assert_true(pool_info(bench.pool).handles <= 40);
    for (size_t i = 0; i < 200; i++)
        CHECK_OK(loch_free(bench.pool, blocks[i]));
    pool_bench_close(&bench);
}

/* --- memory that the host uses at once --- */

/* Blocks of a stream without work, used by other streams: what is handed out has been left by all of them. */
static void a_pool_without_waits_hands_out_what_no_stream_uses(void **state)
{
    (void)state;
    for (int waits = LOCH_POOL_WAITS_ON_DEVICE; waits <= LOCH_POOL_WAITS_NONE; waits++) {
        const loch_pool_options options = {
            .size = sizeof options, .kind = LOCH_MEMORY_PINNED, .waits = (loch_pool_waits)waits};
        pool_bench bench = pool_bench_open("sim:1GiB", &options);
        for (size_t i = 0; i < 8; i++) { /* as a loader does: each batch is copied, and freed before the copy ends */
            void *batch = pool_alloc_on(bench.pool, 8 * MIB, bench.a);
            CHECK_OK(sim_busy(bench.b, 1000000));
            CHECK_OK(sim_reads(bench.b, batch, 8 * MIB));
            CHECK_OK(loch_allocator_record_use(bench.pool, batch, bench.b));
            CHECK_OK(loch_free(bench.pool, batch));
        }
        const loch_pool_info info = pool_info(bench.pool);
        if (waits == LOCH_POOL_WAITS_ON_DEVICE) {
            assert_true(info.waits_on_device > 0);
        } else {
            assert_int_equal(info.waits_on_device, 0);
            assert_int_equal(info.waits_on_host, 0);
            assert_int_equal(info.handles, 8); /* the copies have not ended */
        }
        CHECK_OK(loch_device_sync(bench.device));
        void *after = pool_alloc_on(bench.pool, 8 * MIB, bench.a);
        assert_true(pool_info(bench.pool).handles <= 8);
        CHECK_OK(loch_free(bench.pool, after));
        pool_bench_close(&bench);
    }
}

/* Batches whose sizes vary, as training that keeps activations on the host has them: many small blocks, then a large
 * one, freed in reverse while a stream still reads them. The small blocks of the next batch take the small segments
 * that the stream has left, not a part of the large one, which would have to be pinned again. */
static void blocks_that_streams_have_left_are_used_before_large_segments_are_cut(void **state)
{
    (void)state;
    const loch_pool_options options = {
        .size = sizeof options, .kind = LOCH_MEMORY_PINNED, .waits = LOCH_POOL_WAITS_NONE};
    pool_bench bench = pool_bench_open("sim:64GiB", &options);
    enum { SMALL = 40, ALL };
    size_t held = 0;
    for (size_t batch = 0; batch < 12; batch++) {
        const size_t unit = batch ? MIB * (4 + batch * 5 % 6) : 10 * MIB; /* the first is the largest */
        void *blocks[ALL];
        size_t sizes[ALL];
        for (size_t i = 0; i < ALL; i++) {
            sizes[i] = i < SMALL ? unit : 12 * unit;
            blocks[i] = pool_alloc_on(bench.pool, sizes[i], bench.a);
        }
        if (!batch) held = pool_info(bench.pool).reserved_bytes;
        for (size_t i = ALL; i-- > 0;) {
            CHECK_OK(sim_reads(bench.b, blocks[i], sizes[i]));
            CHECK_OK(loch_allocator_record_use(bench.pool, blocks[i], bench.b));
            CHECK_OK(loch_free(bench.pool, blocks[i]));
        }
        CHECK_OK(loch_device_sync(bench.device));
    }
    const loch_pool_info info = pool_info(bench.pool);
    assert_int_equal(info.peak_reserved_bytes, held);
    assert_int_equal(info.handles_created, ALL); /* nothing was pinned again */
    pool_bench_close(&bench);
}

/* At its limit such a pool waits on the host. */
static void a_full_pool_without_waits_waits_on_the_host(void **state)
{
    (void)state;
    const loch_pool_options options = {
        .size = sizeof options, .kind = LOCH_MEMORY_PINNED, .limit_bytes = 16 * MIB, .waits = LOCH_POOL_WAITS_NONE};
    pool_bench bench = pool_bench_open("sim:1GiB", &options);
    for (size_t i = 0; i < 8; i++) {
        void *batch = pool_alloc_on(bench.pool, 8 * MIB, bench.a);
        loch_status status = loch_stream_query(bench.a);
        assert_int_equal(status, LOCH_OK); /* nothing was queued on the stream of the requests */
        CHECK_OK(sim_busy(bench.b, 1000000));
        CHECK_OK(sim_reads(bench.b, batch, 8 * MIB));
        CHECK_OK(loch_allocator_record_use(bench.pool, batch, bench.b));
        CHECK_OK(loch_free(bench.pool, batch));
    }
    const loch_pool_info info = pool_info(bench.pool);
    assert_int_equal(info.waits_on_device, 0);
    assert_true(info.waits_on_host > 0);
    pool_bench_close(&bench);
}

static void an_unknown_kind_of_waits_is_refused(void **state)
{
    (void)state;
    loch_device *device = sim_open("sim:64MiB");
    loch_allocator *pool = TEST_UNTOUCHED;
    const loch_pool_options options = {.size = sizeof options, .waits = (loch_pool_waits)2};
    CHECK_FAILS(loch_pool_create(device, "pool", &options, &pool), INVALID);
    assert_null(pool);
    loch_device_release(device);
}

/* The host's shortage is the pool's: cached segments go back, and the sentence names the host. */
static void a_host_without_memory_makes_the_pool_give_back(void **state)
{
    (void)state;
    pool_bench bench = open_pinned();
    void *second = pool_alloc(bench.pool, 8 * MIB), *first = pool_alloc(bench.pool, 50 * MIB);
    void *third = pool_alloc(bench.pool, 150 * MIB);
    CHECK_OK(loch_free(bench.pool, first));
    CHECK_OK(loch_free(bench.pool, third));
    CHECK_OK(loch_pool_set_idle(bench.pool, 60 * MIB));
    CHECK_OK(loch_pool_set_idle(bench.pool, 0));
    assert_int_equal(pool_info(bench.pool).reserved_bytes, 58 * MIB); /* it needed 208 MiB once, and may hold that */
    const loch_sim_fault once = {.size = sizeof once, .call = "pinned_alloc", .status = LOCH_E_HOST_MEMORY};
    CHECK_OK(loch_sim_set_fault(bench.device, &once));
    third = pool_alloc(bench.pool, 60 * MIB); /* is tried again after the free segment has gone back */
    assert_int_equal(pool_info(bench.pool).handles, 2);
    CHECK_OK(loch_free(bench.pool, third));
    loch_sim_fault always = once;
    always.mode = LOCH_SIM_FAULT_FOREVER;
    CHECK_OK(loch_sim_set_fault(bench.device, &always));
    CHECK_FAILS(pool_try_alloc(bench.pool, 70 * MIB, 0, NULL, &third), DEVICE_MEMORY);
    assert_non_null(strstr(loch_error_get()->sentence, "the host has no 70 MiB more"));
    CHECK_OK(loch_sim_set_fault(bench.device, NULL));
    CHECK_OK(loch_free(bench.pool, second));
    pool_bench_close(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(one_block_just_above_a_power_of_two_takes_its_size),
        POOL_TEST(many_blocks_of_one_size_take_their_sum),
        POOL_TEST(mixed_sizes_at_one_time_take_their_sum),
        POOL_TEST(sizes_one_after_the_other_take_the_largest),
        POOL_TEST(sizes_that_alternate_do_not_pin_again_and_again),
        POOL_TEST(batches_of_varying_sizes_settle),
        POOL_TEST(a_trim_forgets_the_most_in_use),
        POOL_TEST(small_blocks_leave_large_free_segments_whole),
        POOL_TEST(many_small_blocks_use_a_large_free_segment),
        POOL_TEST(small_blocks_share_segments),
        POOL_TEST(a_limit_holds_to_the_page),
        POOL_TEST(segments_that_streams_use_do_not_make_way),
        POOL_TEST(a_host_without_memory_makes_the_pool_give_back),
        POOL_TEST(a_driver_that_does_not_align_gets_few_calls),
        POOL_TEST(a_pool_without_waits_hands_out_what_no_stream_uses),
        POOL_TEST(blocks_that_streams_have_left_are_used_before_large_segments_are_cut),
        POOL_TEST(a_full_pool_without_waits_waits_on_the_host),
        POOL_TEST(an_unknown_kind_of_waits_is_refused),
    };
    return cmocka_run_group_tests_name("pools of pinned memory", tests, NULL, NULL);
}
