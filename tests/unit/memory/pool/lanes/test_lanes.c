/* SPDX-License-Identifier: MIT */
/* Pools and streams over time: what is freed elsewhere comes together again, events do not pile up, captures end, and
 * the figures stay right. */
#include "sim_fixture.h"

#define DEVICE "sim:1GiB"

static loch_allocator *make_pool(loch_device *device, const loch_pool_options *options)
{
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(device, "pool", options, &pool));
    return pool;
}

static void *take_on(loch_allocator *pool, size_t bytes, loch_stream *stream)
{
    void *address;
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = stream};
    CHECK_OK(loch_allocator_alloc(pool, &request, &address));
    return address;
}

static loch_pool_info get_info(loch_allocator *pool)
{
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(pool, &info));
    return info;
}

static size_t trim_all(loch_allocator *pool)
{
    size_t released;
    CHECK_OK(loch_allocator_trim(pool, 0, &released));
    return get_info(pool).reserved_bytes;
}

/* Blocks of one stream that are always freed on another: the memory does not grow with time, and all can go. */
static void test_blocks_that_cross(size_t bytes)
{
    loch_device *device = sim_open(DEVICE);
    loch_stream *maker = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_stream *user = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_allocator *pool = make_pool(device, NULL);
    void *blocks[10];
    for (size_t round = 0; round < 2000; round++) {
        for (size_t i = 0; i < 10; i++)
            blocks[i] = take_on(pool, bytes, maker);
        for (size_t i = 0; i < 10; i++)
            CHECK_OK(loch_allocator_free_on(pool, blocks[i], user));
        CHECK_OK(loch_device_sync(device));
    }
    assert_true(get_info(pool).peak_reserved_bytes <= 40 * bytes + 64 * TEST_MIB);
    assert_int_equal(trim_all(pool), 0);
    loch_allocator_release(pool);
    loch_stream_close(maker);
    loch_stream_close(user);
    loch_device_release(device);
}

static void small_blocks_that_cross_come_together(void **state)
{
    (void)state;
    test_blocks_that_cross(100 * TEST_KIB);
}

static void large_blocks_that_cross_come_together(void **state)
{
    (void)state;
    test_blocks_that_cross(3 * TEST_MIB / 2);
}

/* Two streams have wanted each other's memory once; from then on each has what it needs. */
static void events_do_not_pile_up(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_allocator *pool = make_pool(device, NULL);
    void *first = take_on(pool, 8 * TEST_MIB, NULL), *second = take_on(pool, 8 * TEST_MIB, stream);
    CHECK_OK(loch_free(pool, first));
    CHECK_OK(loch_free(pool, second));
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    for (size_t round = 0; round < 5000; round++) {
        if (round == 1000) CHECK_OK(loch_host_get_usage(&before));
        void *a = take_on(pool, 4 * TEST_MIB, NULL), *b = take_on(pool, 3 * TEST_MIB, NULL);
        CHECK_OK(loch_free(pool, a));
        CHECK_OK(loch_free(pool, b));
        CHECK_OK(loch_device_sync(device));
    }
    CHECK_OK(loch_host_get_usage(&after));
    assert_true(get_info(pool).events_recorded > 1000); /* else this shows nothing */
    assert_true(after.blocks <= before.blocks + 16);
    loch_allocator_release(pool);
    loch_stream_close(stream);
    loch_device_release(device);
}

/* A block of a capture outlives the capture, is used by ordinary work, and is freed: its next user waits for that
 * work. */
static void released_captures_keep_the_order(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_stream *other = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    const size_t bytes = 32 * TEST_MIB;
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = bytes};
    loch_allocator *pool = make_pool(device, &options);
    CHECK_OK(loch_sim_capture_begin(stream));
    loch_capture_info capture = {.size = sizeof capture};
    CHECK_OK(loch_stream_query_capture(stream, &capture));
    void *block = take_on(pool, bytes, stream);
    loch_sim_graph *graph;
    CHECK_OK(loch_sim_capture_end(stream, &graph));
    loch_sim_graph_destroy(graph);
    assert_int_equal(get_info(pool).captured_bytes, bytes);
    CHECK_OK(loch_pool_release_capture(pool, capture.id));
    assert_int_equal(get_info(pool).captured_bytes, 0);
    CHECK_FAILS(loch_pool_release_capture(pool, capture.id), NOT_FOUND);

    CHECK_OK(sim_busy(stream, 1000000));
    CHECK_OK(sim_writes(stream, block, bytes));
    CHECK_OK(loch_free(pool, block));
    void *again = take_on(pool, bytes, other);
    assert_ptr_equal(again, block);
    CHECK_OK(sim_writes(other, again, bytes));
    CHECK_OK(loch_device_sync(device));
    assert_int_equal(sim_violations(device, NULL), 0);
    CHECK_OK(loch_free(pool, again));
    loch_allocator_release(pool);
    loch_stream_close(stream);
    loch_stream_close(other);
    loch_device_release(device);
}

/* Whole blocks: those up to 1 MiB are used again, a large one does not serve a small request. */
static void whole_blocks_are_used_again(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    const loch_pool_options options = {
        .size = sizeof options, .preset = LOCH_POOL_WHOLE_BLOCKS, .kind = LOCH_MEMORY_PINNED};
    loch_allocator *pool = make_pool(device, &options);
    CHECK_OK(loch_free(pool, take_on(pool, 80 * TEST_MIB, NULL)));
    void *small = take_on(pool, 1000, NULL);
    void *large = take_on(pool, 80 * TEST_MIB, NULL); /* still there */
    assert_true(get_info(pool).reserved_bytes < 100 * TEST_MIB);
    CHECK_OK(loch_free(pool, small));
    CHECK_OK(loch_free(pool, large));
    for (size_t i = 0; i < 1000; i++)
        CHECK_OK(loch_free(pool, take_on(pool, 100 * TEST_KIB, NULL)));
    assert_true(get_info(pool).reserved_bytes < 100 * TEST_MIB);
    loch_allocator_release(pool);
    loch_device_release(device);
}

/* On two streams: what waits for the other one is counted like the rest, so little is given back. */
static void whole_blocks_that_wait_are_counted(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    const loch_pool_options options = {.size = sizeof options, .preset = LOCH_POOL_WHOLE_BLOCKS};
    loch_allocator *pool = make_pool(device, &options);
    for (size_t i = 0; i < 20; i++) {
        void *block = take_on(pool, 600 * TEST_KIB, NULL);
        CHECK_OK(loch_allocator_record_use(pool, block, stream));
        CHECK_OK(loch_free(pool, block));
        CHECK_FAILS(loch_free(pool, block), DOUBLE_FREE);
        CHECK_OK(loch_device_sync(device));
        block = take_on(pool, 5 * TEST_MIB, NULL);
        CHECK_OK(loch_free(pool, block));
    }
    assert_int_equal(get_info(pool).handles_released, 0);
    loch_allocator_release(pool);
    loch_stream_close(stream);
    loch_device_release(device);
}

/* --- growable blocks --- */

static void *take_growable(loch_allocator *pool, size_t bytes, size_t max_bytes, loch_stream *stream)
{
    void *address;
    const loch_request request = {.size = sizeof request, .bytes = bytes, .stream = stream};
    CHECK_OK(loch_pool_alloc_growable(pool, max_bytes, &request, &address));
    return address;
}

static void growable_blocks_are_counted(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    loch_allocator *pool = make_pool(device, NULL);
    void *cache = take_growable(pool, 2 * TEST_MIB, 256 * TEST_MIB, NULL);
    CHECK_OK(loch_pool_resize_growable(pool, cache, 64 * TEST_MIB));
    assert_int_equal(get_info(pool).used_bytes, 64 * TEST_MIB);
    CHECK_OK(loch_pool_resize_growable(pool, cache, 2 * TEST_MIB));
    CHECK_OK(loch_device_sync(device));
    CHECK_OK(loch_free(pool, take_on(pool, 40 * TEST_MIB, NULL)));
    assert_int_equal(get_info(pool).used_bytes, 2 * TEST_MIB);
    CHECK_OK(loch_free(pool, cache));
    assert_int_equal(get_info(pool).used_bytes, 0);
    loch_allocator_release(pool);
    loch_device_release(device);
}

static void empty_growable_blocks_forget_their_uses(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    loch_allocator *pool = make_pool(device, NULL);
    void *cache = take_growable(pool, 0, 4 * TEST_MIB, NULL);
    CHECK_OK(loch_allocator_record_use(pool, cache, stream));
    CHECK_OK(loch_free(pool, cache));
    for (size_t i = 0; i < 4; i++) { /* two, so that the frees do not stay with the thread */
        void *a = take_on(pool, 4 * TEST_MIB, NULL), *b = take_on(pool, 4 * TEST_MIB, NULL);
        CHECK_OK(loch_free(pool, a));
        CHECK_OK(loch_free(pool, b));
    }
    assert_int_equal(get_info(pool).waiting_bytes, 0);
    loch_allocator_release(pool);
    loch_stream_close(stream);
    loch_device_release(device);
}

/* What a block no longer needs, but its stream still uses, stays where it is when the next growth fails. */
static void failed_growth_takes_nothing(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    loch_stream *stream = sim_stream(device, LOCH_STREAM_INDEPENDENT);
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = 64 * TEST_MIB};
    loch_allocator *pool = make_pool(device, &options);
    char *cache = take_growable(pool, 2 * TEST_MIB, 256 * TEST_MIB, stream);
    CHECK_OK(loch_pool_resize_growable(pool, cache, 32 * TEST_MIB));
    CHECK_OK(sim_busy(stream, 1000000000));
    CHECK_OK(sim_writes(stream, cache + 24 * TEST_MIB, TEST_MIB));
    CHECK_OK(loch_pool_resize_growable(pool, cache, 2 * TEST_MIB));
    CHECK_FAILS_SET(loch_pool_resize_growable(pool, cache, 128 * TEST_MIB), TEST_SET(LIMIT) | TEST_SET(FRAGMENTED));
    CHECK_OK(loch_device_sync(device));
    assert_int_equal(sim_violations(device, NULL), 0);
    CHECK_OK(loch_free(pool, cache));
    loch_allocator_release(pool);
    loch_stream_close(stream);
    loch_device_release(device);
}

/* Free memory in handles that are too large, or kept by threads, is no reason to refuse. */
static void growth_takes_what_is_free(void **state)
{
    (void)state;
    loch_device *device = sim_open(DEVICE);
    const loch_pool_options options = {
        .size = sizeof options, .limit_bytes = 64 * TEST_MIB, .handle_bytes = 64 * TEST_MIB};
    loch_allocator *pool = make_pool(device, &options);
    CHECK_OK(loch_free(pool, take_on(pool, 64 * TEST_MIB, NULL)));
    void *cache = take_growable(pool, 4 * TEST_MIB, 64 * TEST_MIB, NULL);
    CHECK_OK(loch_pool_resize_growable(pool, cache, 60 * TEST_MIB));
    CHECK_OK(loch_free(pool, cache));
    loch_allocator_release(pool);
    loch_device_release(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(small_blocks_that_cross_come_together),
        SIM_TEST(large_blocks_that_cross_come_together),
        SIM_TEST(events_do_not_pile_up),
        SIM_TEST(released_captures_keep_the_order),
        SIM_TEST(whole_blocks_are_used_again),
        SIM_TEST(whole_blocks_that_wait_are_counted),
        SIM_TEST(growable_blocks_are_counted),
        SIM_TEST(empty_growable_blocks_forget_their_uses),
        SIM_TEST(failed_growth_takes_nothing),
        SIM_TEST(growth_takes_what_is_free),
    };
    return cmocka_run_group_tests_name("pool_lanes", tests, NULL, NULL);
}
