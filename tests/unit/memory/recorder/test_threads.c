/* SPDX-License-Identifier: MIT */
/* Several threads: their events merge into one order in which no two blocks live at one address at a time; recordings
 * start and stop, and rings are saved, while other threads allocate. */
#include "recorder_fixture.h"
#include "worker.h"
#include <pthread.h>
#include <sched.h>

#define THREADS 4
#define SHARED 64 /* places through which blocks go from thread to thread */

typedef struct worker {
    loch_allocator *pool;
    _Atomic(void *) *places;
    atomic_bool *is_over; /* NULL: runs `turns` */
    size_t turns;
    uint64_t seed;
    char failure[300];
} worker;

/* Swaps blocks of random sizes through the shared places, so that most are freed by another thread. */
static void exchange(worker *w)
{
    test_random random = {w->seed};
    for (size_t i = 0; w->is_over ? !atomic_load(w->is_over) : i < w->turns; i++) {
        static const size_t sizes[] = {16, 100, 1000, 8000, 60000, 300000};
        void *block;
        TRY(loch_alloc(w->pool, sizes[test_random_below(&random, 6)], &block));
        void *other = atomic_exchange(&w->places[test_random_below(&random, SHARED)], block);
        if (other) TRY(loch_free(w->pool, other));
        if (w->is_over && i % 8 == 0) sched_yield(); /* recordings stay small */
    }
}

static void *run(void *user)
{
    exchange(user);
    return NULL;
}

static void free_places(loch_allocator *pool, _Atomic(void *) *places)
{
    for (size_t i = 0; i < SHARED; i++)
        CHECK_OK(loch_free(pool, atomic_exchange(&places[i], NULL)));
}

static void events_of_threads_never_reorder_the_life_of_a_block(void **state)
{
    (void)state;
    static _Atomic(void *) places[SHARED];
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    worker workers[THREADS];
    recorder_begin("merged");
    for (size_t i = 0; i < THREADS; i++)
        workers[i] = (worker){.pool = pool, .places = places, .turns = 30000, .seed = i};
    TEST_THREADS_RUN(run, workers);
    for (size_t i = 0; i < THREADS; i++)
        assert_string_equal(workers[i].failure, "");
    free_places(pool, places);
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    assert_int_equal(recorder_count(r, LOCH_RECORDED_ALLOC), THREADS * 30000);
    assert_int_equal(recorder_count(r, LOCH_RECORDED_FREE), THREADS * 30000);
    assert_int_equal(recorder_info(r).live_blocks, 0);
    assert_int_equal(recorder_info(r).threads, THREADS + 1);
    loch_recording_destroy(r);
    pool_end(pool, device);
}

typedef struct crowd {
    atomic_bool is_over;
    _Atomic(void *) places[SHARED];
    worker workers[THREADS];
    pthread_t threads[THREADS];
} crowd;

static void crowd_start(crowd *c, loch_allocator *pool)
{
    memset(c, 0, sizeof *c);
    for (size_t i = 0; i < THREADS; i++) {
        c->workers[i] = (worker){.pool = pool, .places = c->places, .is_over = &c->is_over, .seed = i};
        assert_int_equal(pthread_create(&c->threads[i], NULL, run, &c->workers[i]), 0);
    }
}

static void crowd_end(crowd *c, loch_allocator *pool)
{
    atomic_store(&c->is_over, true);
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(c->threads[i], NULL), 0);
    for (size_t i = 0; i < THREADS; i++)
        assert_string_equal(c->workers[i].failure, "");
    free_places(pool, c->places);
}

/* Only calls that were in progress at the start may be missing, one for each thread, and blocks that were there at the
 * start and were freed before the recorder walked over the live blocks. */
static void recordings_start_and_stop_while_others_allocate(void **state)
{
    (void)state;
    static crowd c;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    crowd_start(&c, pool);
    for (int turn = 0; turn < 12; turn++) {
        recorder_begin("racing");
        for (int i = 0; i < 20; i++)
            sched_yield();
        loch_recording *r = recorder_finish();
        const loch_recording_info info = recorder_info(r);
        assert_int_equal(info.lost, 0);
        if (info.unknown > 2 * (THREADS + SHARED))
            fail_msg("%llu events are unknown", (unsigned long long)info.unknown);
        loch_recording_destroy(r);
    }
    crowd_end(&c, pool);
    pool_end(pool, device);
}

static void rings_are_saved_while_others_allocate(void **state)
{
    (void)state;
    static crowd c;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    crowd_start(&c, pool);
    const loch_recorder_options options = {.size = sizeof options, .ring_bytes = TEST_MIB};
    CHECK_OK(loch_recorder_start(&options));
    size_t events = 0;
    for (int turn = 0; turn < 12; turn++) {
        CHECK_OK(loch_recorder_save(recorder_name("saved")));
        loch_recording *r = recorder_load(recorder_path);
        events += recorder_info(r).events;
        loch_recording_destroy(r);
    }
    assert_true(events > 0);
    assert_int_equal(unlink(recorder_path), 0);
    CHECK_OK(loch_recorder_stop());
    crowd_end(&c, pool);
    pool_end(pool, device);
}

/* More threads than slots: those without one share a chunk and take turns. */
typedef struct idler {
    loch_allocator *pool;
    pthread_barrier_t *barrier;
    char failure[300];
} idler;

static void idle(idler *w)
{
    void *block;
    pthread_barrier_wait(w->barrier); /* all threads are there */
    for (int i = 0; i < 50; i++) {
        TRY(loch_alloc(w->pool, 100, &block));
        TRY(loch_free(w->pool, block));
    }
}

static void *run_idler(void *user)
{
    idler *w = user;
    void *block;
    if (loch_alloc(w->pool, 100, &block) != LOCH_OK || loch_free(w->pool, block) != LOCH_OK)
        snprintf(w->failure, sizeof w->failure, "no block");
    idle(w);
    pthread_barrier_wait(w->barrier); /* keeps its slot until the others are done */
    return NULL;
}

static void threads_without_a_slot_are_recorded_too(void **state)
{
    (void)state;
    enum { COUNT = 270 };
    static idler idlers[COUNT];
    pthread_barrier_t barrier;
    loch_device *device = sim_open("cpu");
    loch_allocator *pool = pool_make(device, NULL);
    assert_int_equal(pthread_barrier_init(&barrier, NULL, COUNT), 0);
    for (size_t i = 0; i < COUNT; i++)
        idlers[i] = (idler){.pool = pool, .barrier = &barrier};
    recorder_begin("many");
    TEST_THREADS_RUN(run_idler, idlers);
    for (size_t i = 0; i < COUNT; i++)
        assert_string_equal(idlers[i].failure, "");
    loch_recording *r = recorder_finish();
    recorder_expect_whole(r);
    assert_int_equal(recorder_count(r, LOCH_RECORDED_ALLOC), COUNT * 51);
    assert_int_equal(recorder_count(r, LOCH_RECORDED_FREE), COUNT * 51);
    loch_recording_destroy(r);
    pthread_barrier_destroy(&barrier);
    pool_end(pool, device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        SIM_TEST(events_of_threads_never_reorder_the_life_of_a_block),
        SIM_TEST(recordings_start_and_stop_while_others_allocate),
        SIM_TEST(rings_are_saved_while_others_allocate),
        SIM_TEST(threads_without_a_slot_are_recorded_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
