/* SPDX-License-Identifier: MIT */
/* Shared by the tests of contexts: an engine on several devices at once, opened and closed in one line. In the end the
 * engine has no live block, the checkers of simulated devices have found nothing, and no bookkeeping is left. */
#ifndef LOCH_TEST_CONTEXT_FIXTURE_H
#define LOCH_TEST_CONTEXT_FIXTURE_H

#include "tensor_fixture.h"
#include <pthread.h>

#define SEATS_MAX 4

typedef struct bench {
    loch_engine *engine;
    loch_context *context; /* of all seats; ended by bench_close unless it is NULL by then */
    size_t count;
    loch_device *devices[SEATS_MAX];
} bench;

/* Two simulated devices, the host, and a second seat on the first device. */
__attribute__((unused)) static const char *const bench_names[SEATS_MAX] = {"sim:64MiB,backed", "sim:64MiB,backed,id=1",
                                                                           "cpu", "sim:64MiB,backed"};
#define BENCH_SIMS 2 /* the first ones are simulated */
#define BENCH_HOST 2 /* the seat of the host */
#define BENCH_TWIN 3 /* the second seat of the device of seat 0 */

__attribute__((unused)) static void bench_open_with(bench *b, loch_engine_memory memory,
                                                    const loch_context_options *options)
{
    loch_engine_device devices[SEATS_MAX] = {0};
    *b = (bench){.count = SEATS_MAX};
    for (size_t i = 0; i < b->count; i++) {
        devices[i] =
            (loch_engine_device){.size = sizeof devices[i], .name = bench_names[i], .limit_bytes = 24 * TEST_MIB};
        b->devices[i] = sim_open(bench_names[i]);
    }
    const loch_engine_options engine = {
        .size = sizeof engine, .name = "test", .devices = devices, .devices_count = b->count, .memory = memory};
    CHECK_OK(loch_engine_open(&engine, &b->engine));
    CHECK_OK(loch_context_open(b->engine, options, &b->context));
}

__attribute__((unused)) static void bench_open(bench *b)
{
    bench_open_with(b, LOCH_ENGINE_POOLS, NULL);
}

__attribute__((unused)) static void bench_expect_order(const bench *b)
{
    for (size_t i = 0; i < BENCH_SIMS; i++) {
        loch_sim_violation first;
        const size_t count = sim_violations(b->devices[i], &first);
        if (count) fail_msg("%zu uses without order on %s, the first: %s", count, bench_names[i], first.text);
    }
}

__attribute__((unused)) static void bench_close(bench *b)
{
    loch_engine_leaks leaks = {.size = sizeof leaks};
    CHECK_OK(loch_context_close(b->context));
    CHECK_OK(loch_engine_close(b->engine, LOCH_WORKERS_DRAIN, NULL, NULL, &leaks));
    assert_int_equal(leaks.blocks, 0);
    assert_int_equal(leaks.tasks_cancelled, 0);
    bench_expect_order(b);
    for (size_t i = 0; i < b->count; i++)
        loch_device_release(b->devices[i]);
}

/* Live blocks of a seat's allocator. */
__attribute__((unused)) static size_t bench_blocks(const bench *b, unsigned seat)
{
    return tensor_live_blocks(loch_engine_get_allocator(b->engine, LOCH_SEAT(seat)));
}

__attribute__((unused)) static loch_context_stats bench_stats(const bench *b)
{
    loch_context_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_context_get_stats(b->context, &stats));
    return stats;
}

/* A tensor of the current seat with elements first, first + 1, ... */
__attribute__((unused)) static loch_tensor *bench_tensor(const bench *b, int64_t rows, int64_t columns, float first)
{
    float host[1024];
    loch_tensor *tensor;
    assert_true(rows * columns <= 1024);
    for (int64_t i = 0; i < rows * columns; i++)
        host[i] = first + (float)i;
    CHECK_OK(loch_context_create_from(b->context, LOCH_F32, LOCH_SHAPE(rows, columns), host, NULL, 0, &tensor));
    return tensor;
}

/* The contents of any tensor of floats, row after row, have to be those of another. Reads in the order of the default
 * stream, after all work has ended. */
__attribute__((unused)) static void bench_expect_same(const bench *b, loch_tensor *a, loch_tensor *other)
{
    float x[1024], y[1024];
    for (size_t i = 0; i < b->count; i++)
        CHECK_OK(loch_device_sync(b->devices[i]));
    const size_t bytes = loch_tensor_get_bytes(a);
    assert_true(bytes <= sizeof x);
    assert_int_equal(bytes, loch_tensor_get_bytes(other));
    CHECK_OK(loch_tensor_read(a, x, bytes, NULL));
    CHECK_OK(loch_tensor_read(other, y, bytes, NULL));
    assert_memory_equal(x, y, bytes);
}

/* Runs a function in another thread, to its end. */
__attribute__((unused)) static void bench_elsewhere(void *(*function)(void *), void *user)
{
    pthread_t thread;
    void *failed;
    assert_int_equal(pthread_create(&thread, NULL, function, user), 0);
    assert_int_equal(pthread_join(thread, &failed), 0);
    if (failed) fail_msg("%s", (const char *)failed);
}

#endif
