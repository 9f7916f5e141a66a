/* SPDX-License-Identifier: MIT */
/* Shared by the tests of workers: tasks that wait at a gate, fail, or note the order in which they ran. */
#ifndef LOCH_TEST_WORKERS_FIXTURE_H
#define LOCH_TEST_WORKERS_FIXTURE_H

#include "sim_fixture.h"
#include "sweep.h"
#include <pthread.h>
#include <stdatomic.h>

#define TASKS 100

/* A door that tasks wait at. */
typedef struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int arrived;
    bool is_open;
} gate;

#define GATE_CLOSED                                                                                                    \
    {                                                                                                                  \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER                                        \
    }

__attribute__((unused)) static loch_status gate_pass(void *user)
{
    gate *g = user;
    pthread_mutex_lock(&g->mutex);
    g->arrived++;
    pthread_cond_broadcast(&g->changed);
    while (!g->is_open)
        pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
    return LOCH_OK;
}

__attribute__((unused)) static void gate_open(gate *g)
{
    pthread_mutex_lock(&g->mutex);
    g->is_open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->mutex);
}

/* Returns when so many stand at the gate. */
__attribute__((unused)) static void gate_await(gate *g, int count)
{
    pthread_mutex_lock(&g->mutex);
    while (g->arrived < count)
        pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

__attribute__((unused)) static loch_status count_up(void *user)
{
    atomic_fetch_add((atomic_int *)user, 1);
    return LOCH_OK;
}

__attribute__((unused)) static loch_status fail_with_code(void *user)
{
    return loch_error_set(LOCH_E_DRIVER, "cuda", 700, "task %d went wrong", *(int *)user);
}

__attribute__((unused)) static loch_workers *make(size_t threads)
{
    loch_workers *workers;
    const loch_workers_options options = {.size = sizeof options, .name = "test", .threads = threads};
    CHECK_OK(loch_workers_open(&options, &workers));
    assert_int_equal(loch_workers_get_threads(workers), threads);
    return workers;
}

__attribute__((unused)) static void end(loch_workers *workers)
{
    size_t cancelled = 7;
    CHECK_OK(loch_workers_close(workers, LOCH_WORKERS_DRAIN, &cancelled));
    assert_int_equal(cancelled, 0);
}

__attribute__((unused)) static loch_task *queue(loch_workers *workers, loch_task_function *function, void *user)
{
    loch_task *task;
    CHECK_OK(loch_workers_run(workers, function, user, &task));
    return task;
}

/* Stands at the gate with all threads, so that what comes after stays in the queue. */
__attribute__((unused)) static void occupy(loch_workers *workers, gate *g)
{
    for (size_t i = 0; i < loch_workers_get_threads(workers); i++)
        CHECK_OK(loch_workers_run(workers, gate_pass, g, NULL));
    gate_await(g, (int)loch_workers_get_threads(workers));
}

typedef struct chain {
    loch_workers *workers;
    int depth;
    loch_task *next; /* queued before */
    gate *gate;      /* to stand at before it waits */
    loch_status seen;
} chain;

__attribute__((unused)) static loch_status go_deeper(void *user)
{
    chain *c = user;
    if (!c->depth) return LOCH_OK;
    chain below = {.workers = c->workers, .depth = c->depth - 1};
    return loch_workers_run_wait(c->workers, go_deeper, &below);
}

typedef struct tree {
    loch_workers *workers;
    atomic_int *count;
    int depth;
} tree;

__attribute__((unused)) static tree tree_nodes[4];

__attribute__((unused)) static loch_status grow(void *user)
{
    const tree *node = user;
    atomic_fetch_add(node->count, 1);
    loch_status status = LOCH_OK;
    for (int i = 0; i < 2 && node->depth && status == LOCH_OK; i++)
        status = loch_workers_run(node->workers, grow, &tree_nodes[node->depth - 1], NULL);
    return status;
}

__attribute__((unused)) static loch_workers *plant(atomic_int *count, gate *g)
{
    loch_workers *workers = make(2);
    occupy(workers, g);
    for (int i = 0; i < 4; i++)
        tree_nodes[i] = (tree){workers, count, i};
    CHECK_OK(loch_workers_run(workers, grow, &tree_nodes[3], NULL));
    return workers;
}

#endif
