/* SPDX-License-Identifier: MIT */
/* Workers: tasks that wait for tasks, and waits for all. A test that would hang is stopped by the time limit of the
 * runner. */
#include "workers_fixture.h"
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

/* --- tasks that wait for tasks --- */

static loch_status wait_for_next(void *user)
{
    chain *c = user;
    c->seen = loch_task_wait(c->next);
    return c->seen;
}

/* In the original, a task of a single thread that waited for another one hung. */
static void run_wait_from_a_worker_of_one_thread(void **state)
{
    (void)state;
    loch_workers *workers = make(1);
    chain c = {.workers = workers, .depth = 100};
    CHECK_OK(loch_workers_run_wait(workers, go_deeper, &c));
    end(workers);
}

typedef struct parents {
    loch_workers *workers;
    int depth, deepest, ran; /* of one thread: no lock */
} parents;

static loch_status run_a_child(void *user)
{
    parents *p = user;
    atomic_int count = 0;
    p->ran++;
    if (++p->depth > p->deepest) p->deepest = p->depth;
    const loch_status status = loch_workers_run_wait(p->workers, count_up, &count);
    p->depth--;
    return status;
}

/* A waiting thread runs the task that it waits for, and no other queued task: stacks do not grow with the queue. */
static void stacks_do_not_grow_with_the_queue(void **state)
{
    (void)state;
    gate g = GATE_CLOSED;
    parents p = {.workers = make(1)};
    occupy(p.workers, &g);
    for (int i = 0; i < TASKS; i++)
        CHECK_OK(loch_workers_run(p.workers, run_a_child, &p, NULL));
    gate_open(&g);
    CHECK_OK(loch_workers_wait(p.workers, NULL));
    assert_int_equal(p.ran, TASKS);
    assert_int_equal(p.deepest, 1);
    end(p.workers);
}

static void tasks_wait_for_later_ones_in_any_order(void **state)
{
    (void)state;
    for (size_t threads = 1; threads <= 3; threads++) {
        loch_workers *workers = make(threads);
        gate g = GATE_CLOSED;
        chain links[10];
        loch_task *tasks[10] = {NULL};
        int number = 5;
        occupy(workers, &g);
        /* 0 waits for 1, 1 for 2, ...; the last task fails, and all waiters get the failure. Queued from both ends. */
        loch_task *last = queue(workers, fail_with_code, &number);
        for (int i = 9; i >= 0; i--) {
            links[i] = (chain){.workers = workers, .next = i < 9 ? tasks[i + 1] : last};
            tasks[i] = queue(workers, wait_for_next, &links[i]);
        }
        gate_open(&g);
        CHECK_FAILS(loch_task_wait(tasks[0]), DRIVER);
        assert_string_equal(loch_error_get()->sentence, "task 5 went wrong");
        for (int i = 0; i < 10; i++)
            assert_int_equal(links[i].seen, LOCH_E_DRIVER);
        end(workers);
    }
}

static loch_status keep_record(void *user)
{
    chain *c = user;
    atomic_int count = 0;
    loch_error_set(LOCH_E_LIMIT, NULL, 0, "the parent's own");
    c->seen = loch_workers_run_wait(c->workers, count_up, &count);
    return loch_error_get()->status;
}

static void a_task_run_on_top_leaves_the_record_below_alone(void **state)
{
    (void)state;
    loch_workers *workers = make(1);
    chain c = {.workers = workers};
    CHECK_FAILS(loch_workers_run_wait(workers, keep_record, &c), LIMIT);
    assert_int_equal(c.seen, LOCH_OK);
    assert_string_equal(loch_error_get()->sentence, "the parent's own");
    end(workers);
}

/* A worker that waits must not begin a task that waits for it: neither could go on. */
static void a_waiting_worker_is_not_buried(void **state)
{
    (void)state;
    loch_workers *workers = make(2);
    gate g = GATE_CLOSED;
    loch_task *far = queue(workers, gate_pass, &g); /* on one thread */
    gate_await(&g, 1);
    chain near = {.next = far}, above;
    loch_task *waiting = queue(workers, wait_for_next, &near); /* on the other: waits for it */
    above = (chain){.next = waiting};
    loch_task *buried = queue(workers, wait_for_next, &above); /* waits for that one */
    gate_open(&g);
    CHECK_OK(loch_task_wait(buried));
    end(workers);
}

static loch_status wait_for_the_other(void *user)
{
    chain *c = user;
    (void)!gate_pass(c->gate); /* all of them do, so that all run */
    c->seen = loch_task_wait(c->next);
    if (c->seen == LOCH_E_INVALID) loch_task_release(c->next); /* it stays the caller's */
    return LOCH_OK;
}

static void a_wait_that_could_never_end_is_refused(void **state)
{
    (void)state;
    for (int count = 1; count <= 3; count++) {
        loch_workers *workers = make(3);
        gate both = GATE_CLOSED;
        chain links[3] = {{0}};
        loch_task *tasks[3];
        int told = 0;
        for (int i = 0; i < count; i++) {
            links[i].gate = &both;
            tasks[i] = queue(workers, wait_for_the_other, &links[i]);
        }
        gate_await(&both, count);
        for (int i = 0; i < count; i++)
            links[i].next = tasks[(i + 1) % count]; /* a circle; of one: itself */
        gate_open(&both);
        CHECK_OK(loch_workers_wait(workers, NULL));
        for (int i = 0; i < count; i++) {
            assert_true(links[i].seen == LOCH_OK || links[i].seen == LOCH_E_INVALID);
            told += links[i].seen == LOCH_E_INVALID;
        }
        assert_int_equal(told, 1);
        end(workers);
    }
}

/* --- waiting for all --- */

typedef struct producer {
    loch_workers *workers;
    atomic_bool is_over;
    atomic_int ran;
    char failure[400];
} producer;

/* There is always one task that has not ended: the next one is queued before the gate of the last one opens. */
static void *produce(void *argument)
{
    producer *p = argument;
    static gate gates[2];
    int at = 0;
    gates[0] = gates[1] = (gate)GATE_CLOSED;
    loch_status status = loch_workers_run(p->workers, gate_pass, &gates[0], NULL);
    while (status == LOCH_OK && !atomic_load(&p->is_over)) {
        at = !at;
        gate_await(&gates[!at], 1); /* so the one before has left the other gate */
        gates[at] = (gate)GATE_CLOSED;
        status = loch_workers_run(p->workers, gate_pass, &gates[at], NULL);
        gate_open(&gates[!at]);
        atomic_fetch_add(&p->ran, 1);
    }
    gate_open(&gates[at]);
    if (status != LOCH_OK) snprintf(p->failure, sizeof p->failure, "%.300s", loch_error_get()->sentence);
    return NULL;
}

static void wait_is_not_held_up_by_later_tasks(void **state)
{
    (void)state;
    producer p = {.workers = make(1)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, produce, &p), 0);
    while (atomic_load(&p.ran) < 10)
        sched_yield();
    CHECK_OK(loch_workers_wait(p.workers, NULL));
    atomic_store(&p.is_over, true);
    pthread_join(thread, NULL);
    assert_string_equal(p.failure, "");
    end(p.workers);
}

static void wait_includes_what_tasks_queue(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) { /* most of the times they grow while the wait is on */
        gate g = GATE_CLOSED;
        atomic_int count = 0;
        loch_workers *workers = plant(&count, &g);
        gate_open(&g);
        CHECK_OK(loch_workers_wait(workers, NULL));
        assert_int_equal(count, 15);
        end(workers);
    }
}

int main(void)
{
    if (test_heap_install() != LOCH_OK) return 1;
    const struct CMUnitTest tests[] = {
        SIM_TEST(run_wait_from_a_worker_of_one_thread),   SIM_TEST(stacks_do_not_grow_with_the_queue),
        SIM_TEST(tasks_wait_for_later_ones_in_any_order), SIM_TEST(a_task_run_on_top_leaves_the_record_below_alone),
        SIM_TEST(a_waiting_worker_is_not_buried),         SIM_TEST(a_wait_that_could_never_end_is_refused),
        SIM_TEST(wait_is_not_held_up_by_later_tasks),     SIM_TEST(wait_includes_what_tasks_queue),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
