/* SPDX-License-Identifier: MIT */
/* Shared by the tests of moving memory under load: a pool with streams, movable buffers with holes between them, and
 * crowds of threads that allocate, check and free. */
#ifndef LOCH_TEST_CROWD_FIXTURE_H
#define LOCH_TEST_CROWD_FIXTURE_H

#include "child_fixture.h"
#include "sweep.h"
#include "tensor_fixture.h"
#include "worker.h"
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#define MIB TEST_MIB
#define KIB TEST_KIB

#define STREAMS POOL_BENCH_STREAMS
#define WATCHDOG_SECONDS 200 /* a hang ends the program, and so fails the test */

__attribute__((unused)) static pool_bench bench_open(const char *device, size_t limit, size_t handle)
{
    const loch_pool_options options = {.size = sizeof options, .limit_bytes = limit, .handle_bytes = handle};
    return pool_bench_open(device, &options);
}

__attribute__((unused)) static void bench_close(pool_bench *s)
{
    sim_expect_order(s->device);
    pool_bench_close(s);
}

__attribute__((unused)) static loch_buffer *make(const pool_bench *s, size_t bytes, loch_stream *stream)
{
    const loch_request request = {.size = sizeof request, .stream = stream, .flags = LOCH_ALLOC_MOVABLE};
    loch_buffer *buffer;
    CHECK_OK(loch_buffer_create(s->pool, bytes, &request, &buffer));
    return buffer;
}

/* `count` buffers of equal size, every second of which is freed again. */
__attribute__((unused)) static void make_holes(const pool_bench *s, loch_buffer **buffers, size_t count, size_t bytes)
{
    for (size_t i = 0; i < count; i++)
        buffers[i] = make(s, bytes, s->streams[i % STREAMS]);
    for (size_t i = 0; i < count; i += 2)
        loch_buffer_clear(&buffers[i]);
}

#define SLOTS 24
#define STILL 12

/* Each slot has one reference of a buffer; the thread that takes it out owns it. */
typedef struct crowd {
    pool_bench *scene;
    _Atomic(loch_buffer *) slots[SLOTS];
    loch_buffer *still[STILL]; /* that is never released */
    unsigned tolerated;        /* statuses that an allocation may have */
    size_t most_bytes;         /* of one buffer */
    atomic_bool is_over;
    atomic_size_t moves; /* of all compactions */
} crowd;

typedef struct worker {
    crowd *crowd;
    loch_stream *stream;
    test_random random;
    void (*job)(struct worker *w);
    uint64_t done; /* what that means is the job's */
    char failure[400];
} worker;

__attribute__((unused)) static void *worker_run(void *user)
{
    worker *w = user;
    w->job(w);
    if (*w->failure) atomic_store(&w->crowd->is_over, true);
    return NULL;
}

/* Runs the jobs at once, stops those that run until they are stopped, and releases what is in the slots. */
__attribute__((unused)) static void crowd_run(crowd *c, worker *workers, size_t count, size_t until_told)
{
    pthread_t threads[8];
    alarm(WATCHDOG_SECONDS);
    for (size_t i = 0; i < count; i++) {
        workers[i].crowd = c;
        workers[i].random.state = 71 + i;
        workers[i].stream = c->scene->streams[i % STREAMS];
        assert_int_equal(pthread_create(&threads[i], NULL, worker_run, &workers[i]), 0);
    }
    for (size_t i = 0; i < count; i++) {
        if (i == count - until_told) atomic_store(&c->is_over, true);
        pthread_join(threads[i], NULL);
    }
    alarm(0);
    for (size_t i = 0; i < count; i++)
        if (*workers[i].failure) fail_msg("%s", workers[i].failure);
    for (size_t i = 0; i < SLOTS; i++)
        loch_buffer_release(atomic_exchange(&c->slots[i], NULL));
}

__attribute__((unused)) static const struct {
    const char *device;
    size_t limit;
} grounds[] = {
    {"cpu", 24 * MIB}, {"sim:256MiB,backed,granule=64KiB", 4 * MIB}, {"sim:256MiB,backed,virtual=off", 24 * MIB}};

__attribute__((unused)) static crowd crowd_on(pool_bench *s)
{
    return (crowd){.scene = s, .tolerated = POOL_SHORT, .most_bytes = 200 * KIB};
}

typedef struct raw_block {
    void *address;
    size_t bytes;
    uint64_t seed;
} raw_block;

__attribute__((unused)) static _Atomic(raw_block *) raw_slots[SLOTS];

#define MANY 24

__attribute__((unused)) static loch_status busy_write(loch_stream *stream, const void *address, size_t bytes)
{
    const loch_sim_range range = {address, bytes};
    const loch_sim_kernel kernel = {
        .size = sizeof kernel, .name = "writer", .writes = &range, .writes_count = 1, .duration_ns = 100000};
    return loch_sim_launch(stream, &kernel);
}

/* One thing that needs host memory, on a pool that stays; gives back all that it took. */
typedef loch_status operation(const pool_bench *s);

#endif
