/* SPDX-License-Identifier: MIT */
/* Workers, engines and timelines after a fork. */
#include "fork_fixture.h"
#include <loch/engine.h>
#include <loch/sim.h>
#include <loch/driver.h>
#include <loch/raw.h>
#include <loch/virtual.h>
#include <loch/observer.h>

#define SIM "sim:256MiB,backed"

/* --- workers --- */

typedef struct tasks {
    loch_workers *workers;
    loch_task *running, *queued, *ended;
    atomic_int is_in, is_waiting, may_go;
    int bad;
} tasks;

static loch_status task_stays(void *user)
{
    tasks *t = user;
    atomic_store(&t->is_in, 1);
    fork_await(&t->may_go, 1);
    return LOCH_OK;
}

static loch_status task_ends(void *user)
{
    (void)user;
    return LOCH_OK;
}

static void child_of_tasks(void *user)
{
    tasks *t = user;
    loch_task *task;
    NEED_FORKED(loch_workers_run(t->workers, task_ends, t, NULL));
    NEED_FORKED(loch_workers_run(t->workers, task_ends, t, &task));
    NEED_FORKED(loch_workers_run_wait(t->workers, task_ends, t));
    NEED_FORKED(loch_workers_wait(t->workers, NULL));
    NEED(loch_workers_get_threads(t->workers) == 0);
    NEED_FORKED(loch_task_query(t->running));
    NEED_FORKED(loch_task_wait(t->running));
    NEED_FORKED(loch_task_wait(t->queued));
    NEED_OK(loch_task_wait(t->ended));
    NEED(loch_workers_cancel(t->workers) == 0);
    NEED_OK(loch_workers_close(t->workers, LOCH_WORKERS_DRAIN, NULL));
    const loch_workers_options options = {.size = sizeof options, .threads = 2};
    if (FORK_HAS_THREADS) { /* new ones are as ever */
        NEED_OK(loch_workers_open(&options, &t->workers));
        NEED_OK(loch_workers_run_wait(t->workers, task_ends, t));
        NEED_OK(loch_workers_close(t->workers, LOCH_WORKERS_DRAIN, NULL));
    }
}

static void *wait_for_all(void *user)
{
    tasks *t = user;
    atomic_store(&t->is_waiting, 1);
    return loch_workers_wait(t->workers, NULL) == LOCH_OK ? NULL : user;
}

static void a_child_is_refused_workers(void **state)
{
    (void)state;
    tasks t = {0};
    const loch_workers_options options = {.size = sizeof options, .threads = 1};
    CHECK_OK(loch_workers_open(&options, &t.workers));
    CHECK_OK(loch_workers_run(t.workers, task_ends, &t, &t.ended));
    CHECK_OK(loch_workers_wait(t.workers, NULL));
    CHECK_OK(loch_workers_run(t.workers, task_stays, &t, &t.running));
    CHECK_OK(loch_workers_run(t.workers, task_ends, &t, &t.queued));
    CHECK_OK(loch_workers_run(t.workers, task_ends, &t, NULL));
    fork_await(&t.is_in, 1);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_all, &t), 0);
    fork_await(&t.is_waiting, 1);
    int bad = 0;
    for (int i = 0; i < 10 && !bad; i++)
        bad = fork_run(child_of_tasks, &t);
    atomic_store(&t.may_go, 1);
    void *failed;
    pthread_join(thread, &failed);
    assert_null(failed);
    assert_int_equal(bad, 0);
    CHECK_OK(loch_task_wait(t.running));
    CHECK_OK(loch_task_wait(t.queued));
    CHECK_OK(loch_task_wait(t.ended));
    CHECK_OK(loch_workers_close(t.workers, LOCH_WORKERS_DRAIN, NULL));
}

/* Memory that was reachable from the first thread's stack is not a leak. */
static void leave_unseen(void)
{
    _exit(0);
}

/* A task forks: its thread is the child's only one, which ends when the task has returned. */
static loch_status task_forks(void *user)
{
    tasks *t = user;
    const pid_t child = fork_now();
    if (child == 0) {
        alarm(FORK_SECONDS);
        atexit(leave_unseen);
        loch_task *task;
        NEED_FORKED(loch_workers_run(t->workers, task_ends, t, &task));
        return LOCH_OK;
    }
    t->bad = child < 0 ? -1 : fork_finish(child);
    return LOCH_OK;
}

static void a_worker_that_forked_ends_in_the_child(void **state)
{
    (void)state;
    tasks t = {0};
    const loch_workers_options options = {.size = sizeof options, .threads = 2};
    CHECK_OK(loch_workers_open(&options, &t.workers));
    CHECK_OK(loch_workers_run_wait(t.workers, task_forks, &t));
    assert_int_equal(t.bad, 0);
    CHECK_OK(loch_workers_close(t.workers, LOCH_WORKERS_DRAIN, NULL));
}

/* --- engines and timelines --- */

typedef struct engines {
    loch_engine *engine;
    atomic_bool is_over;
    atomic_int failures, started, is_locked, may_unlock;
} engines;

static loch_status engine_function(loch_engine *engine, loch_seat seat, void *user)
{
    (void)user;
    void *block;
    const loch_span_options timed = {.size = sizeof timed,
                                     .stream = loch_stream_get_default(loch_engine_get_device(engine, seat))};
    loch_span span = loch_span_begin(loch_engine_get_timeline(engine), "seat", &timed);
    loch_status status = loch_alloc(loch_engine_get_allocator(engine, seat), 5000, &block);
    if (status == LOCH_OK) status = loch_free(loch_engine_get_allocator(engine, seat), block);
    loch_span_end(&span);
    return status;
}

static void engine_round(engines *e)
{
    loch_span span = loch_span_begin(loch_engine_get_timeline(e->engine), "round", NULL);
    if (loch_engine_for_each(e->engine, engine_function, e, NULL) != LOCH_OK) atomic_fetch_add(&e->failures, 1);
    loch_span_end(&span);
}

static void *engine_thread(void *user)
{
    engines *e = user;
    loch_context *context = NULL;
    if (loch_context_open(e->engine, NULL, &context) != LOCH_OK) atomic_fetch_add(&e->failures, 1);
    atomic_fetch_add(&e->started, 1);
    while (!atomic_load(&e->is_over))
        FORK_STEP(engine_round(e));
    if (loch_context_close(context) != LOCH_OK) atomic_fetch_add(&e->failures, 1);
    return NULL;
}

static void *engine_locker(void *user)
{
    engines *e = user;
    if (loch_engine_lock(e->engine, LOCH_SEAT(0)) != LOCH_OK) return user;
    atomic_store(&e->is_locked, 1);
    fork_await(&e->may_unlock, 1);
    return loch_engine_unlock(e->engine, LOCH_SEAT(0)) == LOCH_OK ? NULL : user;
}

static void child_of_engines(void *user)
{
    engines *e = user;
    size_t failed, kept;
    NEED_FORKED(loch_engine_for_each(e->engine, engine_function, e, &failed));
    NEED(failed == 3);
    NEED_OK(loch_engine_lock(e->engine, LOCH_SEAT(0))); /* the thread that held it is not here */
    NEED_OK(loch_engine_unlock(e->engine, LOCH_SEAT(0)));
    NEED_OK(loch_engine_lock(e->engine, LOCH_SEAT(1)));
    NEED_OK(loch_engine_unlock(e->engine, LOCH_SEAT(1)));
    NEED_OK(loch_engine_unlock(e->engine, LOCH_SEAT(1))); /* held by this thread, across the fork */
    for (unsigned i = 0; i < 2; i++)
        NEED_OK(engine_function(e->engine, LOCH_SEAT(i), NULL));
    NEED_FORKED(engine_function(e->engine, LOCH_SEAT(2), NULL));
    loch_timeline *timeline = loch_engine_get_timeline(e->engine);
    loch_span span = loch_span_begin(timeline, "in the child", NULL);
    loch_span_end(&span);
    loch_timeline_count(timeline, &kept, NULL);
    NEED(kept > 0);
    char text[4096];
    NEED(test_timeline_print(timeline, LOCH_TIMELINE_TREE, 0, text, sizeof text) > 0);
    loch_timeline_forget(timeline);
    NEED(test_engine_print(e->engine, text, sizeof text) > 0);
    NEED_OK(loch_engine_close(e->engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
}

static void a_child_is_refused_engines(void **state)
{
    (void)state;
    engines e = {0};
    const loch_engine_device devices[3] = {
        {.size = sizeof devices[0], .name = "cpu", .limit_bytes = 64 * TEST_MIB, .workers = 2},
        {.size = sizeof devices[0], .name = "cpu", .limit_bytes = 64 * TEST_MIB},
        {.size = sizeof devices[0], .name = SIM, .limit_bytes = 64 * TEST_MIB}};
    const loch_timeline_options recorded = {.size = sizeof recorded, .level = 1};
    const loch_engine_options options = {
        .size = sizeof options, .devices = devices, .devices_count = 3, .timeline = &recorded};
    CHECK_OK(loch_engine_open(&options, &e.engine));
    pthread_t threads[3], locker;
    for (int i = 0; i < 3; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, engine_thread, &e), 0);
    assert_int_equal(pthread_create(&locker, NULL, engine_locker, &e), 0);
    fork_await(&e.is_locked, 1);
    fork_await(&e.started, 3);
    CHECK_OK(loch_engine_lock(e.engine, LOCH_SEAT(1)));
    int bad = 0;
    for (int i = fork_count(50); i > 0 && !bad; i--)
        bad = fork_run(child_of_engines, &e);
    CHECK_OK(loch_engine_unlock(e.engine, LOCH_SEAT(1)));
    atomic_store(&e.is_over, true);
    atomic_store(&e.may_unlock, 1);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    void *failed;
    pthread_join(locker, &failed);
    assert_null(failed);
    assert_int_equal(bad, 0);
    assert_int_equal(atomic_load(&e.failures), 0);
    CHECK_OK(loch_engine_close(e.engine, LOCH_WORKERS_DRAIN, NULL, NULL, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_child_is_refused_workers),
        cmocka_unit_test(a_worker_that_forked_ends_in_the_child),
        cmocka_unit_test(a_child_is_refused_engines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
