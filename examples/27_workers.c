/* SPDX-License-Identifier: MIT */
/* Workers are threads that run tasks. Tasks are queued, waited for, queried and cancelled. A wait returns the status of
 * the task with the sentence of its error. Tasks may wait for tasks, with any number of threads. */
#include <loch/engine.h>
#include <loch/loch.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>

#define THREADS 3
#define PARTS 12

typedef struct job {
    loch_workers *workers;
    atomic_int parts_done;
    atomic_int gate; /* tasks wait until the gate is open */
    atomic_uint seen[THREADS];
} job;

static loch_status part(void *user)
{
    job *j = user;
    atomic_fetch_add(&j->seen[loch_workers_get_current(j->workers)], 1); /* each thread has its own index */
    atomic_fetch_add(&j->parts_done, 1);
    return LOCH_OK;
}

/* A task that divides its work into parts and waits for them. */
static loch_status whole(void *user)
{
    job *j = user;
    loch_task *tasks[PARTS] = {NULL};
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < PARTS && status == LOCH_OK; i++)
        status = loch_workers_run(j->workers, part, j, &tasks[i]);
    for (size_t i = 0; i < PARTS && tasks[i]; i++) {
        const loch_status ended = loch_task_wait(tasks[i]);
        if (status == LOCH_OK) status = ended;
    }
    return status;
}

static loch_status fail(void *user)
{
    return loch_error_set(LOCH_E_IO, NULL, 0, "the file %s is not there", (const char *)user);
}

/* Blocks its thread until the gate opens. */
static loch_status block(void *user)
{
    job *j = user;
    while (!atomic_load(&j->gate))
        sched_yield();
    return LOCH_OK;
}

/* While every thread is blocked, queued tasks stay in the queue and can be cancelled. */
static int cancel(job *j)
{
    loch_task *held[THREADS], *one, *other;
    for (size_t i = 0; i < THREADS; i++)
        LOCH_CHECK(loch_workers_run(j->workers, block, j, &held[i]));
    LOCH_CHECK(loch_workers_run(j->workers, part, j, &one));
    LOCH_CHECK(loch_workers_run(j->workers, part, j, &other));
    const int waits = loch_task_query(one) == LOCH_E_BUSY;
    LOCH_CHECK(loch_task_cancel(one));
    const size_t cancelled = loch_workers_cancel(j->workers); /* also blocking tasks that have not begun */
    atomic_store(&j->gate, 1);
    const loch_status ended = loch_task_wait(one);
    loch_task_release(other); /* no thread waits for this task */
    size_t not_run = 0;
    for (size_t i = 0; i < THREADS; i++)
        not_run += loch_task_wait(held[i]) == LOCH_E_CANCELLED;
    printf("cancelled: %s, and %zu more\n", loch_status_name(ended), cancelled - not_run);
    return waits && ended == LOCH_E_CANCELLED && cancelled - not_run == 1;
}

int main(void)
{
    const loch_workers_options options = {.size = sizeof options, .name = "example", .threads = THREADS};
    job j = {.workers = NULL};
    char name[] = "weights.npy";
    size_t failed = 0, cancelled = 1;
    unsigned seen = 0;
    LOCH_CHECK(loch_workers_open(&options, &j.workers));
    LOCH_CHECK(loch_workers_run_wait(j.workers, whole, &j)); /* queues one task and waits for it */
    for (size_t i = 0; i < THREADS; i++)
        seen += atomic_load(&j.seen[i]);
    printf("%d parts done by %zu threads\n", atomic_load(&j.parts_done), loch_workers_get_threads(j.workers));

    LOCH_CHECK(loch_workers_run(j.workers, fail, name, NULL)); /* no thread waits for this task alone */
    const loch_status first = loch_workers_wait(j.workers, &failed);
    printf("%zu task failed: %s\n", failed, loch_error_get()->sentence);

    const int right = cancel(&j);
    LOCH_CHECK(loch_workers_close(j.workers, LOCH_WORKERS_DRAIN, &cancelled));
    return right && seen == PARTS && first == LOCH_E_IO && failed == 1 && cancelled == 0 ? 0 : 1;
}
