/* SPDX-License-Identifier: MIT */
/* Tasks of several sets of workers that wait for each other: a wait that could never end is refused, whichever sets the
 * circle goes through, and no other wait is. */
#include "test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define SETS_MAX 4

static loch_workers *make(size_t threads)
{
    loch_workers *workers;
    const loch_workers_options options = {.size = sizeof options, .name = "set", .threads = threads};
    CHECK_OK(loch_workers_open(&options, &workers));
    return workers;
}

static void end(loch_workers *workers)
{
    CHECK_OK(loch_workers_close(workers, LOCH_WORKERS_DRAIN, NULL));
}

static void await(const atomic_bool *flag)
{
    while (!atomic_load(flag))
        sched_yield();
}

/* Waits, and gives the task back if the wait is refused. */
static loch_status wait_for(loch_task *task)
{
    const loch_status status = loch_task_wait(task);
    if (status == LOCH_E_INVALID) loch_task_release(task);
    return status;
}

static loch_status nothing(void *user)
{
    (void)user;
    return LOCH_OK;
}

/* --- tasks that all run --- */

typedef struct ring {
    loch_task *next;
    loch_status seen;
    atomic_bool *may_go;
    atomic_bool is_there;
} ring;

static loch_status ring_run(void *user)
{
    ring *r = user;
    atomic_store(&r->is_there, true);
    await(r->may_go);
    r->seen = wait_for(r->next);
    return LOCH_OK;
}

static void a_circle_of_running_tasks_is_refused_once(void **state)
{
    (void)state;
    for (int round = 0; round < 40; round++) {
        const size_t count = 2 + (size_t)round % (SETS_MAX - 1);
        loch_workers *sets[SETS_MAX];
        loch_task *tasks[SETS_MAX];
        ring rings[SETS_MAX];
        atomic_bool may_go = false;
        size_t told = 0;
        for (size_t i = 0; i < count; i++) {
            sets[i] = make(1 + (size_t)round % 2);
            rings[i] = (ring){.may_go = &may_go};
            CHECK_OK(loch_workers_run(sets[i], ring_run, &rings[i], &tasks[i]));
        }
        for (size_t i = 0; i < count; i++) {
            await(&rings[i].is_there);
            rings[i].next = tasks[(i + 1) % count];
        }
        atomic_store(&may_go, true);
        for (size_t i = 0; i < count; i++)
            CHECK_OK(loch_workers_wait(sets[i], NULL));
        for (size_t i = 0; i < count; i++) {
            end(sets[i]);
            assert_true(rings[i].seen == LOCH_OK || rings[i].seen == LOCH_E_INVALID);
            told += rings[i].seen == LOCH_E_INVALID;
        }
        assert_int_equal(told, 1);
    }
}

/* --- a task that cannot begin, because all threads that could run it wait for the one that waits for it --- */

typedef struct pair {
    loch_workers *one, *two;
    loch_status seen[2];
} pair;

/* By the workers `two`: has something done by those of the task that waits for this one. */
static loch_status pair_back(void *user)
{
    pair *p = user;
    loch_task *task;
    const loch_status status = loch_workers_run(p->one, nothing, NULL, &task);
    if (status != LOCH_OK) return status;
    p->seen[1] = wait_for(task);
    return LOCH_OK;
}

static loch_status pair_run(void *user)
{
    pair *p = user;
    loch_task *task;
    const loch_status status = loch_workers_run(p->two, pair_back, p, &task);
    if (status != LOCH_OK) return status;
    p->seen[0] = wait_for(task);
    return LOCH_OK;
}

static void a_wait_for_a_task_that_cannot_begin_is_refused(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        pair p = {.one = make(1), .two = make(1)};
        CHECK_OK(loch_workers_run_wait(p.one, pair_run, &p));
        CHECK_OK(loch_workers_wait(p.two, NULL)); /* it goes on when the other was refused */
        assert_int_equal((p.seen[0] == LOCH_E_INVALID) + (p.seen[1] == LOCH_E_INVALID), 1);
        end(p.one);
        end(p.two);
    }
}

/* With one thread more the task is run, so no wait is refused. */
static void with_threads_enough_no_wait_is_refused(void **state)
{
    (void)state;
    for (int round = 0; round < 200; round++) {
        pair p = {.one = make(2), .two = make(1)};
        CHECK_OK(loch_workers_run_wait(p.one, pair_run, &p));
        CHECK_OK(p.seen[0]);
        CHECK_OK(p.seen[1]);
        end(p.one);
        end(p.two);
    }
}

/* --- the same question over and over --- */

#define CROWD 4
#define ROUNDS 300

typedef struct crowd {
    loch_workers *sets[2];
    atomic_int refused, failed;
} crowd;

typedef struct errand {
    crowd *all;
    int depth;
} errand;

static loch_status errand_queue(crowd *all, int depth, loch_task_function *function, loch_task **out)
{
    errand *e = malloc(sizeof *e);
    if (!e) return LOCH_E_HOST_MEMORY;
    *e = (errand){all, depth};
    const loch_status status = loch_workers_run(all->sets[depth % 2], function, e, out);
    if (status != LOCH_OK) free(e);
    return status;
}

/* Goes to and fro between the sets, and waits each time. A task that is refused leaves, so all of them end. */
static loch_status errand_run(void *user)
{
    const errand e = *(errand *)user;
    free(user);
    loch_task *task;
    if (!e.depth) return LOCH_OK;
    loch_status status = errand_queue(e.all, e.depth - 1, errand_run, &task);
    if (status == LOCH_OK) status = wait_for(task);
    if (status == LOCH_E_INVALID)
        atomic_fetch_add(&e.all->refused, 1);
    else if (status != LOCH_OK)
        atomic_fetch_add(&e.all->failed, 1);
    return LOCH_OK;
}

static void tasks_of_two_sets_that_wait_without_a_circle_all_end(void **state)
{
    (void)state;
    crowd all = {.sets = {make(CROWD), make(CROWD)}};
    for (int i = 0; i < ROUNDS; i++)
        CHECK_OK(errand_queue(&all, 1 + i % 6, errand_run, NULL));
    for (int i = 0; i < 8; i++) /* each wait is for one more step of the longest */
        CHECK_OK(loch_workers_wait(all.sets[i % 2], NULL));
    end(all.sets[0]);
    end(all.sets[1]);
    assert_int_equal(atomic_load(&all.failed), 0);
}

int main(void)
{
    const struct CMUnitTest cases[] = {
        cmocka_unit_test(a_circle_of_running_tasks_is_refused_once),
        cmocka_unit_test(a_wait_for_a_task_that_cannot_begin_is_refused),
        cmocka_unit_test(with_threads_enough_no_wait_is_refused),
        cmocka_unit_test(tasks_of_two_sets_that_wait_without_a_circle_all_end),
    };
    return cmocka_run_group_tests(cases, NULL, NULL);
}
