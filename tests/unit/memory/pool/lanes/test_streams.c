/* SPDX-License-Identifier: MIT */
/* A pool and streams, under the checker of stream order: memory goes from one stream to another only behind order, no
 * event is recorded where none is needed, and streams come and go. */
#include "pool_fixture.h"

#define MIB TEST_MIB
#define STEPPED "sim:256MiB,granule=64KiB,clock=stepped,lag=1000"

static void expect_order(const pool_bench *it)
{
    loch_sim_violation found;
    if (sim_violations(it->device, &found)) fail_msg("%s", found.text);
}

/* A block that a kernel writes, freed in the order of its stream. */
static void *use_and_free(const pool_bench *it, size_t bytes, loch_stream *stream)
{
    void *block = pool_alloc_on(it->pool, bytes, stream);
    CHECK_OK(sim_writes(stream, block, bytes));
    CHECK_OK(loch_free(it->pool, block));
    return block;
}

static void one_stream_needs_no_events(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(STEPPED, NULL);
    static const size_t sizes[] = {100, 5000, 20000, 300000, 3000000};
    for (int i = 0; i < 500; i++) {
        void *first = use_and_free(&it, sizes[i % 5], it.a), *second = use_and_free(&it, sizes[i % 5], it.a);
        assert_ptr_equal(first, second); /* at once, on its own stream */
    }
    const loch_pool_info info = pool_info(it.pool);
    assert_int_equal(info.events_recorded, 0);
    assert_int_equal(info.waits_on_device, 0);
    assert_int_equal(info.waits_on_host, 0);
    assert_int_equal(info.streams, 1);
    assert_int_equal(sim_stats(it.device).events, 0);
    assert_true(sim_stats(it.device).pending > 0);
    expect_order(&it);
    pool_bench_close(&it);
}

/* What one stream has freed, another uses when there is nothing else: behind a wait on the device. */
static void memory_goes_to_another_stream_behind_a_wait(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 32 * MIB};
    static const size_t sizes[] = {30 * MIB, 4 * MIB, 300 * TEST_KIB, 20 * TEST_KIB, 1000};
    for (size_t i = 0; i < 5; i++) {
        pool_bench it = pool_bench_open(STEPPED, &options);
        enum { COUNT = 4096 };
        void **blocks = malloc(COUNT * sizeof *blocks);
        size_t count = 0;
        for (; count < COUNT; count++) { /* all of the limit, or much of it */
            if (pool_try_alloc(it.pool, sizes[i], 0, it.a, &blocks[count]) != LOCH_OK) break;
            CHECK_OK(sim_writes(it.a, blocks[count], sizes[i]));
        }
        for (size_t k = 0; k < count; k++)
            CHECK_OK(loch_free(it.pool, blocks[k]));
        void *block = pool_alloc_on(it.pool, 20 * MIB, it.b);
        CHECK_OK(sim_writes(it.b, block, 20 * MIB));
        expect_order(&it);
        const loch_pool_info info = pool_info(it.pool);
        assert_true(info.waits_on_device + info.waits_on_host > 0 || sizes[i] < 8 * TEST_KIB);
        assert_true(info.reserved_bytes <= 32 * MIB);
        assert_true(info.events_recorded < 64);
        CHECK_OK(loch_free(it.pool, block));
        free(blocks);
        pool_bench_close(&it);
    }
}

/* Memory goes to another stream without a wait once its own has passed. */
static void finished_memory_needs_no_wait(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 32 * MIB};
    pool_bench it = pool_bench_open(STEPPED, &options);
    (void)use_and_free(&it, 30 * MIB, it.a);
    CHECK_OK(loch_free(it.pool, pool_alloc_on(it.pool, 24 * MIB, it.b))); /* streams share from now on */
    CHECK_OK(loch_device_sync(it.device));
    const loch_pool_info before = pool_info(it.pool);
    (void)use_and_free(&it, 28 * MIB, it.a);
    CHECK_OK(loch_device_sync(it.device));
    (void)use_and_free(&it, 26 * MIB, it.b);
    expect_order(&it);
    assert_true(pool_info(it.pool).waits_on_host - before.waits_on_host <= 2);
    pool_bench_close(&it);
}

/* --- a second stream uses a block --- */

static void a_recorded_use_is_waited_for(void **state)
{
    (void)state;
    static const size_t sizes[] = {1000, 20000, 300000, 5000000};
    for (size_t i = 0; i < 4; i++) {
        pool_bench it = pool_bench_open(STEPPED, NULL);
        for (int round = 0; round < 20; round++) {
            void *block = pool_alloc_on(it.pool, sizes[i], it.a);
            CHECK_OK(sim_writes(it.a, block, sizes[i]));
            pool_order(it.device, it.a, it.b);
            CHECK_OK(loch_allocator_record_use(it.pool, block, it.b));
            CHECK_OK(loch_allocator_record_use(it.pool, block, it.b)); /* twice is once */
            CHECK_OK(sim_reads(it.b, block, sizes[i]));
            CHECK_OK(loch_free(it.pool, block));
            void *next = pool_alloc_on(it.pool, sizes[i], it.a); /* a is not behind b */
            CHECK_OK(sim_writes(it.a, next, sizes[i]));
            expect_order(&it);
            CHECK_OK(loch_free(it.pool, next));
            if (round % 5 == 4) CHECK_OK(loch_device_sync(it.device));
        }
        assert_true(pool_info(it.pool).reserved_bytes <= 64 * sizes[i] + 4 * MIB);
        pool_bench_close(&it);
    }
}

static void a_free_on_another_stream_waits_for_the_first(void **state)
{
    (void)state;
    static const size_t sizes[] = {1000, 20000, 300000, 5000000};
    for (size_t i = 0; i < 4; i++) {
        pool_bench it = pool_bench_open(STEPPED, NULL);
        for (int round = 0; round < 20; round++) {
            void *block = pool_alloc_on(it.pool, sizes[i], it.a);
            CHECK_OK(sim_writes(it.a, block, sizes[i]));
            pool_order(it.device, it.a, it.b);
            CHECK_OK(sim_writes(it.b, block, sizes[i]));
            CHECK_OK(loch_allocator_free_on(it.pool, block, it.b));
            loch_stream *later = round % 2 ? it.a : it.b;
            void *next = pool_alloc_on(it.pool, sizes[i], later);
            CHECK_OK(sim_writes(later, next, sizes[i]));
            expect_order(&it);
            CHECK_OK(loch_free(it.pool, next));
        }
        pool_bench_close(&it);
    }
}

/* Streams hand blocks on, nothing is waited for on the host, and memory stays bounded. */
static void a_pipeline_of_streams_needs_no_wait_of_the_host(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open("sim:256MiB,granule=64KiB,lag=1000", NULL);
    size_t held = 0;
    for (int i = 0; i < 400; i++) {
        void *block = pool_alloc_on(it.pool, 2 * MIB, it.a);
        CHECK_OK(sim_writes(it.a, block, 2 * MIB));
        pool_order(it.device, it.a, it.b);
        CHECK_OK(sim_reads(it.b, block, 2 * MIB));
        CHECK_OK(loch_allocator_free_on(it.pool, block, it.b));
        if (i == 200) held = pool_info(it.pool).reserved_bytes;
    }
    expect_order(&it);
    const loch_pool_info info = pool_info(it.pool);
    assert_true(info.reserved_bytes <= held + 4 * MIB);
    assert_true(info.reserved_bytes <= 64 * MIB);
    assert_int_equal(info.waits_on_host, 0);
    pool_bench_close(&it);
}

/* What b takes of a's unfinished memory is in b's order then: the rest of the arena has not passed for c, though b has
 * passed more epochs than a was in. */
static void small_blocks_in_borrowed_memory_keep_the_order_of_the_lender(void **state)
{
    (void)state;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = MIB};
    pool_bench it = pool_bench_open(STEPPED, &options);
    loch_stream *c = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    for (int i = 0; i < 8; i++) {
        (void)use_and_free(&it, MIB, it.b);
        CHECK_OK(loch_device_sync(it.device));
        (void)pool_trim(it.pool, 0);
    }
    (void)use_and_free(&it, MIB, it.a);
    void *small = pool_alloc_on(it.pool, 40 * TEST_KIB, it.b);
    void *block = pool_alloc_on(it.pool, 800 * TEST_KIB, c);
    CHECK_OK(sim_writes(c, block, 800 * TEST_KIB));
    expect_order(&it);
    CHECK_OK(loch_free(it.pool, block));
    CHECK_OK(loch_free(it.pool, small));
    loch_stream_close(c);
    pool_bench_close(&it);
}

/* --- streams that end --- */

static void blocks_outlive_their_stream(void **state)
{
    (void)state;
    static const size_t sizes[] = {1000, 20000, 300000, 5000000};
    pool_bench it = pool_bench_open(STEPPED, NULL);
    void *live[4];
    loch_stream *stream = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
    for (size_t i = 0; i < 4; i++) {
        live[i] = pool_alloc_on(it.pool, sizes[i], stream);
        CHECK_OK(sim_writes(stream, live[i], sizes[i]));
        void *cached = pool_alloc_on(it.pool, sizes[i], stream);
        CHECK_OK(sim_writes(stream, cached, sizes[i]));
        CHECK_OK(loch_free(it.pool, cached));
    }
    loch_stream_close(stream); /* its work has not ended */
    assert_int_equal(pool_info(it.pool).streams, 0);
    for (size_t i = 0; i < 4; i++) {
        void *other = pool_alloc_on(it.pool, sizes[i], it.a);
        CHECK_OK(sim_writes(it.a, other, sizes[i]));
        expect_order(&it);
        CHECK_OK(loch_free(it.pool, live[i]));
        void *next = pool_alloc_on(it.pool, sizes[i], it.a);
        CHECK_OK(sim_writes(it.a, next, sizes[i]));
        expect_order(&it);
        CHECK_OK(loch_free(it.pool, other));
        CHECK_OK(loch_free(it.pool, next));
        pool_expect_whole(it.pool);
    }
    pool_bench_close(&it);
}

/* A stream that a block was used on ends before the block is freed. */
static void a_recorded_stream_may_end_before_the_free(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open(STEPPED, NULL);
    for (size_t bytes = 1000; bytes < 10 * MIB; bytes *= 7) {
        void *block = pool_alloc_on(it.pool, bytes, it.a);
        loch_stream *stream = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
        CHECK_OK(loch_allocator_record_use(it.pool, block, stream));
        CHECK_OK(sim_writes(stream, block, bytes));
        loch_stream_close(stream);
        CHECK_OK(loch_free(it.pool, block));
        void *next = pool_alloc_on(it.pool, bytes, it.a);
        CHECK_OK(sim_writes(it.a, next, bytes));
        expect_order(&it);
        CHECK_OK(loch_free(it.pool, next));
        CHECK_OK(loch_device_sync(it.device));
    }
    pool_bench_close(&it);
}

static void many_streams_come_and_go_without_growth(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open("sim:256MiB,granule=64KiB,lag=1000", NULL);
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    size_t held = 0, events = 0;
    for (int i = 0; i < 300; i++) {
        loch_stream *stream = sim_stream(it.device, LOCH_STREAM_INDEPENDENT);
        (void)use_and_free(&it, 3 * MIB, stream);
        (void)use_and_free(&it, 100, stream);
        (void)use_and_free(&it, 50000, stream);
        loch_stream_close(stream);
        if (i % 10 == 9) CHECK_OK(loch_device_sync(it.device));
        if (i == 99) {
            CHECK_OK(loch_host_get_usage(&before));
            held = pool_info(it.pool).reserved_bytes;
            events = sim_stats(it.device).events;
        }
    }
    CHECK_OK(loch_device_sync(it.device));
    CHECK_OK(loch_host_get_usage(&after));
    expect_order(&it);
    pool_expect_whole(it.pool);
    assert_true(pool_info(it.pool).reserved_bytes <= held + 8 * MIB);
    assert_true(held <= 96 * MIB);
    assert_true(after.bytes <= before.bytes + before.bytes / 4);
    assert_true(sim_stats(it.device).events <= events + 16);
    pool_bench_close(&it);
}

/* A stream borrows the rest of a handle that another stream occupies, and ends. The rest serves the other stream again
 * before its next block occupies a further handle. */
static void the_rest_of_a_handle_comes_back_from_an_ended_stream(void **state)
{
    (void)state;
    pool_bench it = pool_bench_open("sim:256MiB,granule=2MiB", NULL);
    loch_stream *ended;
    CHECK_OK(loch_stream_create(it.device, NULL, &ended));
    char *kept = pool_alloc_on(it.pool, 600 * TEST_KIB, it.a), *next;
    char *borrowed = pool_alloc_on(it.pool, 1200 * TEST_KIB, ended);
    assert_in_range(borrowed - kept, 0, 2 * MIB);
    void *whole[2] = {pool_alloc_on(it.pool, 2 * MIB, it.a), pool_alloc_on(it.pool, 2 * MIB, it.a)};
    for (size_t i = 0; i < 2; i++) /* one of them stays in the cache of the thread */
        CHECK_OK(loch_free(it.pool, whole[i]));
    CHECK_OK(loch_free(it.pool, borrowed));
    CHECK_OK(loch_stream_sync(ended));
    loch_stream_close(ended);
    next = pool_alloc_on(it.pool, 1200 * TEST_KIB, it.a);
    assert_in_range(next - kept, 0, 2 * MIB);
    pool_expect_whole(it.pool);
    assert_int_equal(pool_trim(it.pool, 0), 4 * MIB);
    assert_int_equal(pool_info(it.pool).reserved_bytes, 2 * MIB);
    CHECK_OK(loch_free(it.pool, next));
    CHECK_OK(loch_free(it.pool, kept));
    expect_order(&it);
    pool_bench_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        POOL_TEST(one_stream_needs_no_events),
        POOL_TEST(memory_goes_to_another_stream_behind_a_wait),
        POOL_TEST(finished_memory_needs_no_wait),
        POOL_TEST(a_recorded_use_is_waited_for),
        POOL_TEST(a_free_on_another_stream_waits_for_the_first),
        POOL_TEST(a_pipeline_of_streams_needs_no_wait_of_the_host),
        POOL_TEST(small_blocks_in_borrowed_memory_keep_the_order_of_the_lender),
        POOL_TEST(blocks_outlive_their_stream),
        POOL_TEST(a_recorded_stream_may_end_before_the_free),
        POOL_TEST(many_streams_come_and_go_without_growth),
        POOL_TEST(the_rest_of_a_handle_comes_back_from_an_ended_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
