/* SPDX-License-Identifier: MIT */
/* Scratch memory under threads: each has a stream of its own that ends at times, all share a pool of buffers and a
 * workspace, buffers go from thread to thread behind events, and memory is short. The device's checker has to find
 * nothing. */
#include "test.h"
#include "worker.h"

#include <pthread.h>

enum { THREADS = 4, STEPS = 2000, SLOTS = 8 };

/* A buffer on its way to another thread, behind an event. */
typedef struct parcel {
    loch_buffer *buffer;
    loch_event *event;
} parcel;

typedef struct shared {
    loch_device *device;
    loch_allocator *allocator;
    loch_buffer_pool *pool;
    loch_workspace *workspace;
    loch_stream *workspace_stream;
    pthread_mutex_t mutex;
    parcel slots[SLOTS];
} shared;

typedef struct worker {
    shared *with;
    loch_stream *stream;
    test_random random;
    char failure[512];
} worker;

static parcel swap_parcel(shared *with, size_t slot, parcel given)
{
    pthread_mutex_lock(&with->mutex);
    const parcel found = with->slots[slot];
    with->slots[slot] = given;
    pthread_mutex_unlock(&with->mutex);
    return found;
}

static loch_status write_it(loch_stream *stream, const loch_buffer *buffer)
{
    const loch_sim_range range = {loch_buffer_get_address(buffer), loch_buffer_get_bytes(buffer)};
    const loch_sim_kernel kernel = {.size = sizeof kernel, .writes = &range, .writes_count = 1};
    return loch_sim_launch(stream, &kernel);
}

/* Uses a buffer of another thread behind its event, and gives it back on a stream that never had it. */
static void worker_receive(worker *w, parcel found)
{
    TRY(loch_stream_wait(w->stream, found.event));
    loch_event_destroy(found.event);
    TRY(write_it(w->stream, found.buffer));
    TRY(loch_buffer_pool_release(w->with->pool, found.buffer, w->stream));
}

static void worker_send(worker *w, loch_buffer *buffer)
{
    parcel given = {.buffer = buffer};
    TRY(loch_event_create(w->with->device, LOCH_EVENT_PLAIN, &given.event));
    TRY(loch_event_record(given.event, w->stream));
    const parcel found = swap_parcel(w->with, test_random_below(&w->random, SLOTS), given);
    if (found.buffer) worker_receive(w, found);
}

static void worker_step(worker *w)
{
    const size_t bytes = 1 + test_random_below(&w->random, 300 * TEST_KIB);
    loch_buffer *buffer;
    TRY(loch_buffer_pool_acquire(w->with->pool, bytes, w->stream, &buffer));
    EXPECT(loch_buffer_get_bytes(buffer) == bytes);
    TRY(write_it(w->stream, buffer));
    switch (test_random_below(&w->random, 4)) {
    case 0: worker_send(w, buffer); break;
    case 1: loch_buffer_release(buffer); break;
    default: TRY(loch_buffer_pool_release(w->with->pool, buffer, w->stream));
    }
}

static void worker_work(worker *w)
{
    for (int i = 0; i < STEPS && !w->failure[0]; i++) {
        worker_step(w);
        if (i % 16 == 0) {
            loch_buffer *space;
            TRY(loch_workspace_acquire(w->with->workspace, 1 + test_random_below(&w->random, 500 * TEST_KIB), &space));
            TRY(write_it(w->with->workspace_stream, space));
            loch_buffer_release(space);
        }
        if (i % 50 == 49) {
            TRY(loch_buffer_pool_trim(w->with->pool, TEST_MIB, NULL));
        }
        if (i % 100 == 99) { /* with work queued on it */
            loch_stream_close(w->stream);
            w->stream = NULL;
            TRY(loch_stream_create(w->with->device, NULL, &w->stream));
        }
    }
}

static void *worker_run(void *user)
{
    worker_work(user);
    return NULL;
}

static void shared_open(shared *with)
{
    const loch_pool_options limited = {.size = sizeof limited, .limit_bytes = 16 * TEST_MIB};
    *with = (shared){.mutex = PTHREAD_MUTEX_INITIALIZER};
    CHECK_OK(loch_device_open("sim:64MiB,granule=64KiB,lag=20000", &with->device));
    CHECK_OK(loch_pool_create(with->device, "scratch", &limited, &with->allocator));
    CHECK_OK(loch_buffer_pool_create(with->allocator, NULL, &with->pool));
    CHECK_OK(loch_stream_create(with->device, NULL, &with->workspace_stream));
    CHECK_OK(loch_workspace_create(with->allocator, with->workspace_stream, NULL, &with->workspace));
}

static void shared_close(shared *with)
{
    size_t found = 1;
    loch_sim_violation first;
    for (size_t i = 0; i < SLOTS; i++) {
        loch_event_destroy(with->slots[i].event);
        loch_buffer_release(with->slots[i].buffer);
    }
    loch_workspace_destroy(with->workspace);
    loch_stream_close(with->workspace_stream);
    loch_buffer_pool_destroy(with->pool);
    CHECK_OK(loch_device_sync(with->device));
    CHECK_OK(test_sim_violations(with->device, &first, 1, &found));
    if (found) fail_msg("%zu findings, the first: %s", found, first.text);
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(with->allocator, &stats));
    assert_int_equal(stats.blocks, 0);
    loch_allocator_release(with->allocator);
    loch_device_release(with->device);
}

static void threads_exchange_scratch_memory(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(1);
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&before));
    for (uint64_t round = 0; round < 4; round++) {
        shared with;
        worker workers[THREADS];
        shared_open(&with);
        for (size_t i = 0; i < THREADS; i++) {
            workers[i] = (worker){.with = &with, .random = {seed + round * THREADS + i}};
            CHECK_OK(loch_stream_create(with.device, NULL, &workers[i].stream));
        }
        TEST_THREADS_RUN(worker_run, workers);
        for (size_t i = 0; i < THREADS; i++) {
            if (workers[i].failure[0]) fail_msg("%s", workers[i].failure);
            loch_stream_close(workers[i].stream);
        }
        loch_buffer_pool_stats stats = {.size = sizeof stats};
        CHECK_OK(loch_buffer_pool_get_stats(with.pool, &stats));
        assert_int_equal(stats.acquired, THREADS * STEPS);
        assert_true(stats.reused > THREADS * STEPS / 10);
        shared_close(&with);
    }
    CHECK_OK(loch_host_get_usage(&after));
    assert_int_equal(after.blocks, before.blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_exchange_scratch_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
