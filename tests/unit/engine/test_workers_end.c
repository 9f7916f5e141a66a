/* SPDX-License-Identifier: MIT */
/* Workers: tasks are cancelled, and the end of workers blocks no thread. A test that would hang is stopped by the time
 * limit of the runner. */
#include "workers_fixture.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* --- cancelling --- */

static void queued_tasks_are_cancelled_and_running_ones_not(void **state)
{
    (void)state;
    loch_workers *workers = make(1);
    gate g = GATE_CLOSED;
    atomic_int count = 0;
    loch_task *running = queue(workers, gate_pass, &g);
    gate_await(&g, 1);
    loch_task *one = queue(workers, count_up, &count), *two = queue(workers, count_up, &count);
    loch_task *three = queue(workers, count_up, &count);
    CHECK_STATUS(loch_task_query(two), LOCH_E_BUSY);
    CHECK_FAILS(loch_task_cancel(running), BUSY);
    CHECK_OK(loch_task_cancel(two));
    CHECK_OK(loch_task_query(two));
    CHECK_FAILS(loch_task_cancel(two), BUSY);
    CHECK_FAILS(loch_task_wait(two), CANCELLED);
    gate_open(&g);
    CHECK_OK(loch_task_wait(one));
    CHECK_OK(loch_task_wait(three));
    CHECK_OK(loch_task_wait(running));
    assert_int_equal(count, 2);
    end(workers);
}

static void all_that_is_queued_is_cancelled(void **state)
{
    (void)state;
    loch_workers *workers = make(2);
    gate g = GATE_CLOSED;
    atomic_int count = 0;
    size_t failed = 9;
    occupy(workers, &g);
    loch_task *held = queue(workers, count_up, &count);
    for (int i = 1; i < TASKS; i++)
        CHECK_OK(loch_workers_run(workers, count_up, &count, NULL));
    assert_int_equal(loch_workers_cancel(workers), TASKS);
    assert_int_equal(loch_workers_cancel(workers), 0);
    CHECK_FAILS(loch_task_wait(held), CANCELLED);
    gate_open(&g);
    CHECK_OK(loch_workers_wait(workers, &failed)); /* cancelled is not failed */
    assert_int_equal(failed, 0);
    assert_int_equal(count, 0);
    end(workers);
}

/* --- the end --- */

typedef struct onlooker {
    pthread_t thread;
    loch_workers *workers;
    loch_task *task; /* NULL: waits for all of them */
    atomic_bool has_come;
    loch_status status;
} onlooker;

static void *look_on(void *argument)
{
    onlooker *o = argument;
    atomic_store(&o->has_come, true);
    o->status = o->task ? loch_task_wait(o->task) : loch_workers_wait(o->workers, NULL);
    return NULL;
}

static void look_on_begin(onlooker *o, loch_workers *workers, loch_task *task)
{
    *o = (onlooker){.workers = workers, .task = task};
    assert_int_equal(pthread_create(&o->thread, NULL, look_on, o), 0);
    while (!atomic_load(&o->has_come))
        sched_yield();
}

typedef struct opener {
    loch_workers *workers;
    gate *gate;
    atomic_int *count;
} opener;

/* Tries to queue until the workers take no more, then opens the gate: what stands at it stood there when the end
 * began. */
static void *open_when_ending(void *argument)
{
    opener *o = argument;
    while (loch_workers_run(o->workers, count_up, o->count, NULL) == LOCH_OK)
        sched_yield();
    gate_open(o->gate);
    return NULL;
}

/* In the original, the end dropped queued tasks, and threads that waited for them hung. */
static void tasks_queued_at_the_end_are_drained_or_cancelled(void **state)
{
    (void)state;
    for (loch_workers_closing how = LOCH_WORKERS_DRAIN; how <= LOCH_WORKERS_CANCEL; how++) {
        gate g = GATE_CLOSED;
        atomic_int count = 0, extra = 0;
        loch_workers *workers = plant(&count, &g); /* a tree of 15 */
        loch_task *first = queue(workers, count_up, &count), *last;
        for (int i = 0; i < TASKS; i++)
            CHECK_OK(loch_workers_run(workers, count_up, &count, NULL));
        last = queue(workers, count_up, &count); /* keeps the records for threads that come late */
        onlooker of_one, of_all;
        look_on_begin(&of_one, workers, first);
        look_on_begin(&of_all, workers, NULL);
        opener o = {.workers = workers, .gate = &g, .count = &extra};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, open_when_ending, &o), 0);
        size_t cancelled;
        CHECK_OK(loch_workers_close(workers, how, &cancelled));
        pthread_join(thread, NULL);
        pthread_join(of_one.thread, NULL);
        pthread_join(of_all.thread, NULL);
        const bool is_drained = how == LOCH_WORKERS_DRAIN;
        assert_int_equal(of_one.status, is_drained ? LOCH_OK : LOCH_E_CANCELLED);
        assert_int_equal(of_all.status, LOCH_OK);
        assert_int_equal(count, is_drained ? 15 + TASKS + 2 : 0);
        assert_true(is_drained ? cancelled == 0 : cancelled >= TASKS + 3 && extra == 0);
        CHECK_OK(loch_task_query(last));
        CHECK_STATUS(loch_task_wait(last), is_drained ? LOCH_OK : LOCH_E_CANCELLED); /* the threads are long gone */
    }
}

typedef struct pair {
    loch_workers *workers;
    gate ending, second;
} pair;

static loch_status open_second(void *user)
{
    gate_open(&((pair *)user)->second);
    return LOCH_OK;
}

/* Needs another thread for what it queues: it does not wait for it as a task. */
static loch_status need_another_thread(void *user)
{
    pair *p = user;
    (void)!gate_pass(&p->ending);
    const loch_status status = loch_workers_run(p->workers, open_second, p, NULL);
    return status == LOCH_OK ? gate_pass(&p->second) : status;
}

static void threads_stay_until_the_last_task_has_ended(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        pair p = {.workers = make(2), .ending = GATE_CLOSED, .second = GATE_CLOSED};
        atomic_int extra = 0;
        opener o = {.workers = p.workers, .gate = &p.ending, .count = &extra};
        pthread_t thread;
        CHECK_OK(loch_workers_run(p.workers, need_another_thread, &p, NULL));
        gate_await(&p.ending, 1);
        assert_int_equal(pthread_create(&thread, NULL, open_when_ending, &o), 0);
        end(p.workers);
        pthread_join(thread, NULL);
    }
}

static loch_status queue_until_cancelled(void *user)
{
    opener *o = user;
    gate_open(o->gate);
    loch_status status;
    while ((status = loch_workers_run(o->workers, count_up, o->count, NULL)) == LOCH_OK)
        sched_yield();
    return status;
}

static void a_running_task_is_told_of_a_cancelling_end(void **state)
{
    (void)state;
    gate g = GATE_CLOSED;
    atomic_int count = 0;
    opener o = {.workers = make(2), .gate = &g, .count = &count};
    CHECK_OK(loch_workers_run(o.workers, queue_until_cancelled, &o, NULL));
    (void)!gate_pass(&g);
    CHECK_FAILS(loch_workers_close(o.workers, LOCH_WORKERS_CANCEL, NULL), CANCELLED);
    assert_non_null(strstr(loch_error_get()->sentence, "closing"));
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        SIM_TEST(queued_tasks_are_cancelled_and_running_ones_not),
        SIM_TEST(all_that_is_queued_is_cancelled),
        SIM_TEST(tasks_queued_at_the_end_are_drained_or_cancelled),
        SIM_TEST(threads_stay_until_the_last_task_has_ended),
        SIM_TEST(a_running_task_is_told_of_a_cancelling_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
