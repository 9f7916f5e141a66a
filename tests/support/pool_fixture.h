/* SPDX-License-Identifier: MIT */
/* Shared by the tests of the pool: pools, blocks and figures in one line each, and the walk over the invariants. */
#ifndef LOCH_TEST_POOL_FIXTURE_H
#define LOCH_TEST_POOL_FIXTURE_H

#include "memory/pool/report/check.h"
#include "memory/pool/front/gate.h"
#include "memory/pool/trim/idle.h"
#include "memory/pool/state/outside.h"
#include "sim_fixture.h"

#define POOL_TEST(function) SIM_TEST(function)

/* Answers to a request that does not fit. */
#define POOL_SHORT (TEST_SET(LIMIT) | TEST_SET(FRAGMENTED) | TEST_SET(DEVICE_MEMORY))

__attribute__((unused)) static loch_allocator *pool_make(loch_device *device, const loch_pool_options *options)
{
    loch_allocator *pool;
    CHECK_OK(loch_pool_create(device, "pool", options, &pool));
    return pool;
}

__attribute__((unused)) static loch_status pool_try_alloc(loch_allocator *pool, size_t bytes, size_t alignment,
                                                          loch_stream *stream, void **out)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .alignment = alignment, .stream = stream};
    return loch_allocator_alloc(pool, &request, out);
}

__attribute__((unused)) static void *pool_alloc_on(loch_allocator *pool, size_t bytes, loch_stream *stream)
{
    void *address;
    CHECK_OK(pool_try_alloc(pool, bytes, 0, stream, &address));
    return address;
}

__attribute__((unused)) static void *pool_alloc(loch_allocator *pool, size_t bytes)
{
    return pool_alloc_on(pool, bytes, NULL);
}

__attribute__((unused)) static loch_pool_info pool_info(loch_allocator *pool)
{
    loch_pool_info info = {.size = sizeof info};
    CHECK_OK(loch_pool_get_info(pool, &info));
    return info;
}

__attribute__((unused)) static loch_stats pool_stats(loch_allocator *pool)
{
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(pool, &stats));
    return stats;
}

/* Trims to `keep` bytes; how much went. */
__attribute__((unused)) static size_t pool_trim(loch_allocator *pool, size_t keep)
{
    size_t released;
    CHECK_OK(loch_allocator_trim(pool, keep, &released));
    return released;
}

/* The walk over the invariants; NULL when they hold. */
__attribute__((unused)) static const char *pool_check(loch_allocator *allocator)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    lochi_pool_take_locks(pool);
    lochi_pool_stop(pool);
    const char *wrong = lochi_pool_check(pool);
    lochi_pool_go(pool);
    lochi_pool_drop_locks(pool);
    return wrong;
}

__attribute__((unused)) static void pool_expect_whole(loch_allocator *pool)
{
    const char *wrong = pool_check(pool);
    if (wrong) fail_msg("the pool is broken: %s", wrong);
}

/* No block is allocated any more: the pool gives back all cached memory. */
__attribute__((unused)) static void pool_expect_empty(loch_allocator *pool)
{
    pool_expect_whole(pool);
    (void)pool_trim(pool, 0);
    pool_expect_whole(pool);
    const loch_pool_info info = pool_info(pool);
    const loch_stats stats = pool_stats(pool);
    assert_int_equal(stats.blocks, 0);
    assert_int_equal(stats.requested_bytes, 0);
    assert_int_equal(stats.allocated_bytes, 0);
    assert_int_equal(stats.allocs, stats.frees);
    assert_int_equal(info.used_bytes, 0);
    assert_int_equal(info.waiting_bytes, 0);
    assert_int_equal(info.thread_bytes, 0);
    assert_int_equal(info.reserved_bytes, 0);
    assert_int_equal(info.free_bytes, 0);
    assert_int_equal(info.largest_free_bytes, 0);
    assert_int_equal(info.handles, 0);
}

/* Empties a pool and ends it, and its device. */
__attribute__((unused)) static void pool_end(loch_allocator *pool, loch_device *device)
{
    pool_expect_empty(pool);
    loch_allocator_release(pool);
    loch_device_release(device);
}

/* Empties a pool and ends it, and its simulated device: nothing is left there, and nothing was used without order. */
__attribute__((unused)) static void pool_end_sim(loch_allocator *pool, loch_device *device)
{
    loch_sim_violation found;
    if (sim_violations(device, &found)) fail_msg("%s", found.text);
    pool_expect_empty(pool);
    loch_allocator_release(pool);
    const loch_sim_stats stats = sim_stats(device);
    assert_int_equal(stats.physical_bytes, 0);
    assert_int_equal(stats.pinned_bytes, 0);
    assert_int_equal(stats.mappings, 0);
    assert_int_equal(stats.reserved_bytes, 0);
    assert_int_equal(stats.events, 0);
    if (sim_violations(device, &found)) fail_msg("%s", found.text);
    loch_device_release(device);
}

/* --- a pool on a device of its own, with streams --- */

#define POOL_BENCH_STREAMS 5

typedef struct pool_bench {
    loch_device *device;
    loch_allocator *pool;
    union {
        loch_stream *streams[POOL_BENCH_STREAMS];
        struct {
            loch_stream *a, *b; /* the first two */
        };
    };
} pool_bench;

__attribute__((unused)) static pool_bench pool_bench_open(const char *device, const loch_pool_options *options)
{
    pool_bench bench = {.device = sim_open(device)};
    bench.pool = pool_make(bench.device, options);
    for (size_t i = 0; i < POOL_BENCH_STREAMS; i++)
        bench.streams[i] = sim_stream(bench.device, LOCH_STREAM_INDEPENDENT);
    return bench;
}

__attribute__((unused)) static void pool_bench_end_streams(pool_bench *bench)
{
    for (size_t i = 0; i < POOL_BENCH_STREAMS; i++) {
        loch_stream_close(bench->streams[i]);
        bench->streams[i] = NULL;
    }
}

/* Ends streams, pool and device: no block is live, nothing is left on a simulated device, and nothing was used without
 * order. Work may still be under way; a test that compares contents before waits by sim_expect_order. A stream that a
 * test destroyed is NULL. */
__attribute__((unused)) static void pool_bench_close(pool_bench *bench)
{
    loch_sim_stats stats = {.size = sizeof stats};
    pool_bench_end_streams(bench);
    if (loch_sim_get_stats(bench->device, &stats) == LOCH_OK)
        pool_end_sim(bench->pool, bench->device);
    else
        pool_end(bench->pool, bench->device);
}

/* Makes `later` wait for what is queued on `earlier`. */
__attribute__((unused)) static void pool_order(loch_device *device, loch_stream *earlier, loch_stream *later)
{
    loch_event *event = sim_event(device);
    CHECK_OK(loch_event_record(event, earlier));
    CHECK_OK(loch_stream_wait(later, event));
    loch_event_destroy(event);
}

#endif
