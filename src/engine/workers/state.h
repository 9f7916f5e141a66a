/* SPDX-License-Identifier: MIT */
/* The state of workers.
 *
 * One lock guards the queue and the state of every task. Functions of the program run without it. A task has two
 * holders: the workers, until the task has ended, and the owner of its loch_task, until it is given back. The second of
 * them to let go frees the task. Each waiting thread sleeps on its own condition variable, so the end of a task wakes
 * only threads that wait for it. A loch_task retains the bookkeeping of the workers, not their threads. It may be
 * waited for after the workers were closed. */
#ifndef LOCHI_WORKERS_STATE_H
#define LOCHI_WORKERS_STATE_H

#include "base/fork.h"
#include "base/lock.h"
#include <loch/device.h>
#include <loch/workers.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define LOCHI_WORKERS_NAME_MAX 16 /* size of a thread's name in the system, with the final zero */

/* One thread. */
typedef struct lochi_worker {
    loch_workers *workers;
    size_t index;
    pthread_t thread;
    loch_task *running; /* the task that it runs now, on top of tasks that wait for this one; NULL between tasks */
    /* the task that it sleeps for, or NULL; guarded like the next two by the lock of waits (wait.c) */
    loch_task *awaited;
    uint64_t walk;                  /* number of the last search that found this worker */
    struct lochi_worker *walk_next; /* found by that search, and not visited yet */
    const void *note;               /* see lochi_workers_set_note; used by its own thread only */
} lochi_worker;

struct loch_task {
    loch_workers *workers;
    loch_task_function *function;
    void *user;
    loch_device *device;           /* made current in the thread while the task runs; NULL: none */
    struct loch_task *prev, *next; /* in the queue */
    uint64_t age; /* loch_workers.age when it was queued from outside; from a task: the age of that task */
    enum { LOCHI_TASK_QUEUED, LOCHI_TASK_RUNNING, LOCHI_TASK_ENDED } state;
    bool is_held;            /* a loch_task for it exists that must be given back */
    bool is_cancelled;       /* it ended without running */
    lochi_worker *runner;    /* the worker that runs it */
    struct loch_task *below; /* the task that its runner was running before */
    pthread_cond_t *waiter;  /* of the thread that waits for it */
    loch_error outcome;      /* written by the runner until the task has ended, then constant */
};

/* A thread in loch_workers_wait. Lies in its stack frame. */
typedef struct lochi_workers_waiter {
    struct lochi_workers_waiter *next;
    uint64_t age;   /* the thread waits for tasks with a lower age */
    size_t pending; /* number of those tasks that have not ended */
    pthread_cond_t ended;
} lochi_workers_waiter;

struct loch_workers {
    char name[LOCHI_WORKERS_NAME_MAX];
    loch_device *device;      /* device of tasks that are not bare; NULL: none */
    atomic_size_t references; /* one for the owner, each loch_task and each waiting thread; relaxed up, acq-rel down */
    /* LOCHI_RANK_WORKERS: guards the members below and all tasks; nothing is called while it is held */
    lochi_lock lock;
    pthread_cond_t work;     /* signalled when a task is queued, or the threads must end */
    loch_task *first, *last; /* the queue */
    size_t pending;          /* tasks that are queued or running */
    uint64_t age;            /* increases with every wait */
    uint64_t queued;         /* number of tasks queued so far */
    lochi_workers_waiter *waiters;
    loch_error failure; /* the first of `failed` */
    size_t failed;      /* failed tasks without a loch_task since the last wait */
    bool is_ending;     /* tasks from outside are refused */
    bool is_cancelling; /* tasks from running tasks are refused too */
    bool is_forked;     /* the threads exist in the parent only */
    lochi_fork_item in_forks;
    size_t threads; /* number of running threads */
    lochi_worker list[];
};

extern _Thread_local lochi_worker *lochi_workers_self; /* in a thread of workers: its record; NULL in other threads */

/* Retain and release the bookkeeping. */
loch_workers *lochi_workers_retain(loch_workers *workers);
void lochi_workers_release(loch_workers *workers);

/* Returns the calling thread's record if it runs a task of these workers. Otherwise returns NULL. */
lochi_worker *lochi_workers_find_self(const loch_workers *workers);

#endif
