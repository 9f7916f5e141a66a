/* SPDX-License-Identifier: MIT */
/* Engines with many threads: functions for each seat from outside and from inside, which meet between the seats; locks;
 * memory; and ends while tasks are queued everywhere. What each thread does follows from the seed; how the threads mix
 * does not. */
#include "test.h"
#include "worker.h"
#include <pthread.h>
#include <stdatomic.h>

#define SEATS 3
#define THREADS 4
#define ROUNDS 60
#define ENDS 40

static const char *const names[SEATS] = {"cpu", "sim:64MiB,granule=64KiB,backed",
                                         "sim:32MiB,granule=64KiB,backed,id=7"};

static loch_engine *open_engine(size_t workers)
{
    loch_engine *engine;
    loch_engine_device table[SEATS];
    for (size_t i = 0; i < SEATS; i++)
        table[i] = (loch_engine_device){.size = sizeof table[i], .name = names[i], .workers = workers};
    const loch_engine_options options = {.size = sizeof options, .devices = table, .devices_count = SEATS};
    CHECK_OK(loch_engine_open(&options, &engine));
    return engine;
}

static void end_engine(loch_engine *engine, loch_workers_closing how)
{
    loch_engine_leaks leaks = {.size = sizeof leaks};
    CHECK_OK(loch_engine_close(engine, how, NULL, NULL, &leaks));
    assert_int_equal(leaks.blocks, 0);
}

typedef struct worker {
    loch_engine *engine;
    test_random random;
    pthread_t thread;
    long *counters; /* of seats, each under its lock */
    char failure[400];
} worker;

static void run_threads(loch_engine *engine, void *(*function)(void *), long *counters, uint64_t seed)
{
    worker workers[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){.engine = engine, .random = {seed + i}, .counters = counters};
        pthread_create(&workers[i].thread, NULL, function, &workers[i]);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(workers[i].thread, NULL);
    for (size_t i = 0; i < THREADS; i++)
        if (workers[i].failure[0]) fail_msg("thread %zu: %s", i, workers[i].failure);
}

/* --- for each seat --- */

/* One call for each seat; the functions meet, so that all have to run at the same time: before they call for others,
 * behind that, both, or not at all. */
typedef struct round {
    pthread_barrier_t all;
    unsigned depth;
    unsigned failing; /* seats from this one on */
    unsigned meets;   /* set: 1 before what they call for, 2 behind it */
    atomic_uint calls;
    atomic_uint below;
} round_of;

static loch_status meet(loch_engine *engine, loch_seat seat, void *user);

static loch_status go_round(loch_engine *engine, unsigned depth, unsigned failing, unsigned meets, unsigned *calls)
{
    round_of r = {.depth = depth, .failing = failing, .meets = meets};
    size_t failed;
    pthread_barrier_init(&r.all, NULL, SEATS);
    const loch_status status = loch_engine_for_each(engine, meet, &r, &failed);
    pthread_barrier_destroy(&r.all);
    *calls = atomic_load(&r.calls) + atomic_load(&r.below);
    if (depth == 0 && failed != SEATS - failing) return LOCH_E_CORRUPT;
    return status;
}

static loch_status meet(loch_engine *engine, loch_seat seat, void *user)
{
    round_of *r = user;
    void *block;
    unsigned calls = 0;
    loch_allocator *allocator = loch_engine_get_allocator(engine, seat);
    if (loch_workers_get_current(loch_engine_get_workers(engine, seat)) == SIZE_MAX) return LOCH_E_WRONG_THREAD;
    atomic_fetch_add(&r->calls, 1);
    if (r->meets & 1) pthread_barrier_wait(&r->all);
    loch_status status = loch_alloc(allocator, 10000 + seat.number, &block);
    if (status == LOCH_OK) status = loch_free(allocator, block);
    if (r->depth) {
        const loch_status nested = go_round(engine, r->depth - 1, r->failing, r->meets, &calls);
        if (status == LOCH_OK) status = nested;
        atomic_fetch_add(&r->below, calls);
    } else if (seat.number >= r->failing) {
        status = loch_error_set(LOCH_E_IO, NULL, 0, "seat %u", seat.number);
    }
    if (r->meets & 2) pthread_barrier_wait(&r->all);
    return status;
}

static void *call_for_each(void *user)
{
    worker *w = user;
    for (int i = 0; i < ROUNDS; i++) {
        const unsigned depth = (unsigned)test_random_below(&w->random, 3);
        const unsigned failing = (unsigned)test_random_below(&w->random, SEATS + 1);
        const unsigned meets = (unsigned)test_random_below(&w->random, 4);
        unsigned calls, expected = SEATS;
        for (unsigned k = 0, level = SEATS; k < depth; k++)
            expected += level *= SEATS;
        const loch_status status = go_round(w->engine, depth, failing, meets, &calls);
        if (calls != expected || status != (failing < SEATS ? LOCH_E_IO : LOCH_OK)) {
            snprintf(w->failure, sizeof w->failure, "depth %u: %u calls of %u, %s: %.200s", depth, calls, expected,
                     loch_status_name(status), loch_error_get()->sentence);
            return NULL;
        }
        char sentence[16];
        snprintf(sentence, sizeof sentence, "seat %u", failing);
        if (failing < SEATS && strcmp(loch_error_get()->sentence, sentence) != 0) {
            snprintf(w->failure, sizeof w->failure, "\"%.200s\" is of another", loch_error_get()->sentence);
            return NULL;
        }
    }
    return NULL;
}

/* One thread a seat is the hard case: everybody waits for everybody. */
static void functions_that_meet_and_nest_all_end(void **state)
{
    (void)state;
    const uint64_t seed = test_seed(41);
    for (size_t workers = 1; workers <= 3; workers++) {
        loch_engine *engine = open_engine(workers);
        run_threads(engine, call_for_each, NULL, seed);
        end_engine(engine, LOCH_WORKERS_DRAIN);
    }
}

/* --- locks --- */

static loch_status lock_and_count(loch_engine *engine, loch_seat seat, void *user)
{
    long *counters = user;
    loch_status status = loch_engine_lock(engine, seat);
    if (status == LOCH_OK) status = loch_engine_lock(engine, seat);
    if (status != LOCH_OK) return status;
    counters[seat.number]++; /* plain: the lock is what orders it */
    status = loch_engine_unlock(engine, seat);
    return status == LOCH_OK ? loch_engine_unlock(engine, seat) : status;
}

static void *count_under_locks(void *user)
{
    worker *w = user;
    for (int i = 0; i < 20 * ROUNDS; i++) {
        const loch_seat seat = LOCH_SEAT(test_random_below(&w->random, SEATS));
        const loch_seat next = LOCH_SEAT(seat.number + 1);
        const loch_status expected = seat.number + 1 < SEATS ? LOCH_OK : LOCH_E_NOT_FOUND;
        const bool is_each = test_random_below(&w->random, 8) == 0;
        loch_status status = LOCH_OK;
        if (is_each) {
            status = loch_engine_for_each(w->engine, lock_and_count, w->counters, NULL);
        } else {
            status = lock_and_count(w->engine, seat, w->counters);
            if (status == LOCH_OK && loch_engine_unlock(w->engine, seat) != LOCH_E_WRONG_THREAD)
                status = LOCH_E_CORRUPT;
            if (status == LOCH_OK) status = loch_engine_lock(w->engine, seat);
            if (status == LOCH_OK && loch_engine_lock(w->engine, next) != expected) status = LOCH_E_CORRUPT;
            if (status == LOCH_OK && expected == LOCH_OK) status = loch_engine_unlock(w->engine, next);
            if (status == LOCH_OK) status = loch_engine_unlock(w->engine, seat);
        }
        if (status != LOCH_OK) {
            snprintf(w->failure, sizeof w->failure, "round %d: %s: %.200s", i, loch_status_name(status),
                     loch_error_get()->sentence);
            return NULL;
        }
        __atomic_fetch_add(&w->counters[SEATS], is_each ? SEATS : 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void locks_of_seats_exclude_threads(void **state)
{
    (void)state;
    long counters[SEATS + 1] = {0}; /* the last: all of them */
    loch_engine *engine = open_engine(2);
    run_threads(engine, count_under_locks, counters, test_seed(42));
    assert_int_equal(counters[0] + counters[1] + counters[2], counters[SEATS]);
    end_engine(engine, LOCH_WORKERS_DRAIN);
}

/* --- ends --- */

/* Tasks that queue others on any seat, call for each seat, and use memory, until there were enough. */
typedef struct crowd {
    loch_engine *engine;
    atomic_long left;
    atomic_long ran, refused, wrong;
} crowd;

static loch_status task_of_crowd(void *user)
{
    crowd *c = user;
    const long left = atomic_fetch_sub(&c->left, 1);
    atomic_fetch_add(&c->ran, 1);
    const loch_seat seat = LOCH_SEAT((unsigned long)left % SEATS);
    loch_allocator *allocator = loch_engine_get_allocator(c->engine, seat);
    void *block = NULL;
    if (loch_alloc(allocator, 3000, &block) != LOCH_OK || loch_free(allocator, block) != LOCH_OK)
        atomic_fetch_add(&c->wrong, 1);
    for (unsigned i = 0; left > 0 && i < 2; i++) {
        const unsigned to = (seat.number + i + 1) % SEATS;
        const loch_status status =
            loch_workers_run(loch_engine_get_workers(c->engine, LOCH_SEAT(to)), task_of_crowd, c, NULL);
        if (status == LOCH_E_CANCELLED)
            atomic_fetch_add(&c->refused, 1);
        else if (status != LOCH_OK)
            atomic_fetch_add(&c->wrong, 1);
    }
    if (left > 0 && left % 16 == 0) {
        long counters[SEATS] = {0};
        const loch_status status = loch_engine_for_each(c->engine, lock_and_count, counters, NULL);
        if (status != LOCH_OK && status != LOCH_E_CANCELLED) atomic_fetch_add(&c->wrong, 1);
        if (status == LOCH_E_CANCELLED) atomic_fetch_add(&c->refused, 1);
    }
    return LOCH_OK;
}

static void an_engine_ends_with_tasks_in_its_queues(void **state)
{
    (void)state;
    test_random random = {test_seed(43)};
    for (int i = 0; i < ENDS; i++) {
        const loch_workers_closing how = i % 2 ? LOCH_WORKERS_CANCEL : LOCH_WORKERS_DRAIN;
        loch_host_usage before = {.size = sizeof before}, now = {.size = sizeof now};
        CHECK_OK(loch_host_get_usage(&before));
        crowd c = {.engine = open_engine(1 + test_random_below(&random, 2)), .left = 200};
        for (unsigned k = 0; k < 8; k++)
            CHECK_OK(
                loch_workers_run(loch_engine_get_workers(c.engine, LOCH_SEAT(k % SEATS)), task_of_crowd, &c, NULL));
        end_engine(c.engine, how);
        assert_int_equal(atomic_load(&c.wrong), 0);
        if (how == LOCH_WORKERS_DRAIN) { /* all have run, and each that had others to queue did */
            assert_int_equal(atomic_load(&c.refused), 0);
            assert_int_equal(atomic_load(&c.ran), 8 + 2 * 200);
        }
        CHECK_OK(loch_host_get_usage(&now));
        assert_int_equal(now.blocks, before.blocks);
        assert_int_equal(now.bytes, before.bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(functions_that_meet_and_nest_all_end),
                                       cmocka_unit_test(locks_of_seats_exclude_threads),
                                       cmocka_unit_test(an_engine_ends_with_tasks_in_its_queues)};
    return cmocka_run_group_tests_name("engine stress", tests, NULL, NULL);
}
