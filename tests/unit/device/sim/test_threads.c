/* SPDX-License-Identifier: MIT */
/* Simulated devices under several threads: everything at once, and the rules for functions that were queued. */
#include "sim_fixture.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#define BACKED "sim:256MiB,granule=64KiB,backed,lag=500"
#define THREADS 4

static void start(pthread_t *thread, void *(*function)(void *), void *user)
{
    assert_int_equal(pthread_create(thread, NULL, function, user), 0);
}

/* --- one device, many threads --- */

typedef struct worker {
    loch_device *device, *other;
    uint64_t seed;
    int calls;            /* that it queued */
    int runs;             /* of them, those that ran; under run_lock */
    const char *failed;   /* text of the call that failed */
    unsigned char *block; /* what its kernel fills */
    size_t bytes;
} worker;

static pthread_mutex_t run_lock = PTHREAD_MUTEX_INITIALIZER;

static void worker_count(void *user)
{
    worker *it = user;
    pthread_mutex_lock(&run_lock); /* a queued function may take locks of its own */
    it->runs++;
    pthread_mutex_unlock(&run_lock);
}

static void worker_fill(void *user)
{
    worker *it = user;
    memset(it->block, 0x77, it->bytes);
}

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        if ((call) != LOCH_OK) {                                                                                       \
            it->failed = #call;                                                                                        \
            return it;                                                                                                 \
        }                                                                                                              \
    } while (0)

static void *worker_run(void *user)
{
    worker *it = user;
    test_random random = {it->seed};
    loch_stream *stream, *far, *of_thread;
    loch_event *event;
    TRY(loch_stream_create(it->device, NULL, &stream));
    TRY(loch_stream_create(it->other, NULL, &far));
    TRY(loch_event_create(it->device, LOCH_EVENT_PLAIN, &event));
    TRY(loch_stream_require_thread_default(it->device, &of_thread));
    for (int round = 0; round < 150; round++) {
        it->bytes = 1 + test_random_below(&random, 8192);
        TRY(loch_raw_alloc(it->device, LOCH_MEMORY_DEVICE, it->bytes, 0, (void **)&it->block));
        const loch_sim_range range = {it->block, it->bytes};
        const loch_sim_kernel kernel = {.size = sizeof kernel,
                                        .writes = &range,
                                        .writes_count = 1,
                                        .duration_ns = 1 + test_random_below(&random, 2000),
                                        .run = worker_fill,
                                        .user = it};
        loch_stream *used = round % 3 ? stream : of_thread;
        TRY(loch_sim_launch(used, &kernel));
        TRY(loch_stream_call(used, worker_count, it));
        it->calls++;
        TRY(loch_event_record(event, used));
        if (round % 2) { /* over the other device and back to the host */
            TRY(loch_stream_wait(far, event));
            TRY(loch_stream_call(far, worker_count, it));
            it->calls++;
            TRY(loch_stream_sync(far));
        } else {
            while (loch_event_query(event) == LOCH_E_BUSY)
                continue; /* every query moves the clock */
        }
        if (it->block[0] != 0x77 || it->block[it->bytes - 1] != 0x77) it->failed = "the kernel's effect";
        TRY(loch_raw_free(it->block));
    }
    TRY(loch_device_sync(it->device));
    TRY(loch_device_sync(it->other));
    loch_event_destroy(event);
    loch_stream_close(stream);
    loch_stream_close(far);
    return it;
}

static void threads_use_two_devices_in_every_way(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(3);
    loch_device *devices[2] = {sim_open(BACKED ",id=1"), sim_open(BACKED ",id=2")};
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.device = devices[i % 2], .other = devices[1 - i % 2], .seed = seed + i};
        start(&threads[i], worker_run, &workers[i]);
    }
    for (size_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        if (workers[i].failed) print_error("thread %zu: %s\n", i, workers[i].failed);
        assert_null(workers[i].failed);
        assert_int_equal(workers[i].runs, workers[i].calls);
    }
    for (size_t i = 0; i < 2; i++) {
        const loch_sim_stats stats = sim_stats(devices[i]);
        assert_int_equal(stats.pending, 0);
        assert_int_equal(stats.physical_bytes, 0);
        assert_int_equal(stats.violations, 0);
        loch_device_release(devices[i]);
    }
}

/* --- a function that takes its time --- */

typedef struct gate {
    loch_device *device;
    sem_t started, go;
    volatile unsigned char *block;
    atomic_int status; /* of the thread that waits */
} gate;

static void gate_run(void *user)
{
    gate *it = user;
    sem_post(&it->started);
    sem_wait(&it->go);
    it->block[0] = 0x55;
}

static void *gate_sync(void *user)
{
    gate *it = user;
    it->status = (int)loch_stream_sync(loch_stream_get_default(it->device));
    return NULL;
}

static void *gate_free(void *user)
{
    gate *it = user;
    it->status = (int)loch_raw_free((void *)(uintptr_t)it->block);
    return NULL;
}

static gate *gate_open(gate *it, const char *name)
{
    *it = (gate){.device = sim_open(name)};
    sem_init(&it->started, 0, 0);
    sem_init(&it->go, 0, 0);
    it->block = sim_raw(it->device, 64);
    const loch_sim_range range = {(const void *)(uintptr_t)it->block, 64};
    const loch_sim_kernel kernel = {
        .size = sizeof kernel, .writes = &range, .writes_count = 1, .run = gate_run, .user = it};
    CHECK_OK(loch_sim_launch(loch_stream_get_default(it->device), &kernel));
    return it;
}

static void gate_close(gate *it)
{
    sem_destroy(&it->started);
    sem_destroy(&it->go);
    loch_device_release(it->device);
}

/* While it runs, other threads go on, and see that the stream is busy. */
static void functions_run_without_the_lock(void **state)
{
    (void)state;
    gate it;
    pthread_t waiting, second;
    gate_open(&it, BACKED ",clock=stepped");
    start(&waiting, gate_sync, &it);
    sem_wait(&it.started);
    CHECK_STATUS(loch_stream_query(loch_stream_get_default(it.device)), LOCH_E_BUSY);
    CHECK_OK(loch_sim_advance(it.device, 1000000));
    CHECK_STATUS(loch_stream_query(loch_stream_get_default(it.device)), LOCH_E_BUSY);
    CHECK_OK(loch_raw_free(sim_raw(it.device, 64)));
    start(&second, gate_sync, &it); /* waits for the function, not for the clock */
    sem_post(&it.go);
    pthread_join(waiting, NULL);
    pthread_join(second, NULL);
    assert_int_equal(it.status, LOCH_OK);
    CHECK_OK(loch_stream_query(loch_stream_get_default(it.device)));
    assert_int_equal(it.block[0], 0x55);
    CHECK_OK(loch_raw_free((void *)(uintptr_t)it.block));
    gate_close(&it);
}

/* Freeing what a running function uses is a mistake, found and made harmless: the memory stays until it has run. */
static void memory_stays_while_a_function_runs(void **state)
{
    (void)state;
    gate it;
    pthread_t waiting, freeing;
    gate_open(&it, BACKED ",clock=stepped");
    start(&waiting, gate_sync, &it);
    sem_wait(&it.started);
    start(&freeing, gate_free, &it);
    while (!sim_violations(it.device, NULL))
        sched_yield();
    sem_post(&it.go);
    pthread_join(waiting, NULL);
    pthread_join(freeing, NULL);
    assert_int_equal(it.status, LOCH_OK);
    assert_int_equal(sim_stats(it.device).physical_bytes, 0);
    assert_int_equal(sim_violations(it.device, NULL), 1);
    gate_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(threads_use_two_devices_in_every_way),
        SIM_TEST(functions_run_without_the_lock),
        SIM_TEST(memory_stays_while_a_function_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
