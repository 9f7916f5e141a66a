/* SPDX-License-Identifier: MIT */
/* Shared by the tests of pools of buffers: a bench with a pool, an allocator and two streams. */
#ifndef LOCH_TEST_BUFFER_POOL_FIXTURE_H
#define LOCH_TEST_BUFFER_POOL_FIXTURE_H

#include "sim_fixture.h"
#include "sweep.h"
#include "worker.h"

#define KIB TEST_KIB
#define STEPPED "sim:64MiB,granule=64KiB,clock=stepped,lag=1000,backed"

typedef struct bench {
    loch_device *device;
    loch_allocator *allocator;
    loch_stream *a, *b;
    loch_buffer_pool *pool;
} bench;

typedef loch_status make_allocator(loch_device *device, loch_allocator **out);

__attribute__((unused)) static loch_status make_pool(loch_device *device, loch_allocator **out)
{
    return loch_pool_create(device, "scratch", NULL, out);
}

__attribute__((unused)) static bench bench_open_with(const char *name, make_allocator *make,
                                                     const loch_buffer_pool_options *options)
{
    bench it = {.device = sim_open(name)};
    CHECK_OK(make(it.device, &it.allocator));
    CHECK_OK(loch_stream_create(it.device, NULL, &it.a));
    CHECK_OK(loch_stream_create(it.device, NULL, &it.b));
    CHECK_OK(loch_buffer_pool_create(it.allocator, options, &it.pool));
    return it;
}

__attribute__((unused)) static bench bench_open(const char *name, const loch_buffer_pool_options *options)
{
    return bench_open_with(name, make_pool, options);
}

__attribute__((unused)) static void bench_close(bench *it)
{
    loch_stream_close(it->a);
    loch_stream_close(it->b);
    loch_buffer_pool_destroy(it->pool);
    sim_expect_order(it->device);
    loch_allocator_release(it->allocator);
    loch_device_release(it->device);
}

__attribute__((unused)) static loch_buffer *get(const bench *it, size_t bytes, loch_stream *stream)
{
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_pool_acquire(it->pool, bytes, stream, &buffer));
    assert_int_equal(loch_buffer_get_bytes(buffer), bytes);
    return buffer;
}

__attribute__((unused)) static void put(const bench *it, loch_buffer *buffer, loch_stream *stream)
{
    CHECK_OK(loch_buffer_pool_release(it->pool, buffer, stream));
}

__attribute__((unused)) static loch_status writes(loch_stream *stream, loch_buffer *buffer)
{
    return sim_writes(stream, loch_buffer_get_address(buffer), loch_buffer_get_bytes(buffer));
}

/* Gets a buffer, queues a kernel that writes it, gives it back; returns its number. */
__attribute__((unused)) static uint64_t use(const bench *it, size_t bytes, loch_stream *stream)
{
    loch_buffer *buffer = get(it, bytes, stream);
    const uint64_t id = loch_buffer_get_id(buffer);
    CHECK_OK(writes(stream, buffer));
    put(it, buffer, stream);
    return id;
}

__attribute__((unused)) static loch_buffer_pool_stats stats_of(const bench *it)
{
    loch_buffer_pool_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_buffer_pool_get_stats(it->pool, &stats));
    return stats;
}

#endif
