/* SPDX-License-Identifier: MIT */
/* The state of workers.
 *
 * One lock guards the queue and every task's state; functions of users run without it. A task has two holders: the
 * workers, until it has ended, and whoever has its loch_task, until that is given back; the second one to let go frees
 * it. Whoever waits sleeps on a condition of its own, so that an end wakes nobody else. A loch_task holds the workers'
 * bookkeeping, not their threads, and may be waited for when they have gone. */
#ifndef LOCHI_WORKERS_STATE_H
#define LOCHI_WORKERS_STATE_H

#include "base/fork.h"
#include "base/lock.h"
#include <loch/device.h>
#include <loch/workers.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define LOCHI_WORKERS_NAME_MAX 16 /* what the system keeps of a thread's name, with its final zero */

/* One thread. */
typedef struct lochi_worker {
    loch_workers *workers;
    size_t index;
    pthread_t thread;
    loch_task *running; /* what it runs now, on top of others that wait for it; NULL between tasks */
    loch_task *awaited; /* that it sleeps for, or NULL; like the next two under the lock of waits (wait.c) */
    uint64_t walk;      /* the last search that has found it */
    struct lochi_worker *walk_next; /* found by the same search, and not looked at yet */
    const void *note;               /* lochi_workers_set_note; its own thread's */
} lochi_worker;

struct loch_task {
    loch_workers *workers;
    loch_task_function *function;
    void *user;
    loch_device *device;           /* current in the thread while it runs; NULL: none */
    struct loch_task *prev, *next; /* in the queue */
    uint64_t age; /* loch_workers.age when it was queued from outside, or the age of the task that did it */
    enum { LOCHI_TASK_QUEUED, LOCHI_TASK_RUNNING, LOCHI_TASK_ENDED } state;
    bool is_held;            /* by a loch_task that is to be given back */
    bool is_cancelled;       /* it ended without having run */
    lochi_worker *runner;    /* whoever runs it */
    struct loch_task *below; /* that its runner was running before */
    pthread_cond_t *waiter;  /* of whoever waits for it */
    loch_error outcome;      /* the runner's until it has ended, then constant */
};

/* Somebody in loch_workers_wait; on their stack. */
typedef struct lochi_workers_waiter {
    struct lochi_workers_waiter *next;
    uint64_t age;   /* tasks of a lower age are waited for */
    size_t pending; /* how many of them have not ended */
    pthread_cond_t ended;
} lochi_workers_waiter;

struct loch_workers {
    char name[LOCHI_WORKERS_NAME_MAX];
    loch_device *device;      /* of tasks, unless they are bare; NULL: none */
    atomic_size_t references; /* the owner's, one for each loch_task, one for each waiter: relaxed up, acq-rel down */
    lochi_lock lock;          /* LOCHI_RANK_WORKERS: what follows, and all tasks; nothing is called under it */
    pthread_cond_t work;      /* something is queued, or the threads are to end */
    loch_task *first, *last;  /* the queue */
    size_t pending;           /* tasks that are queued or run */
    uint64_t age;             /* rises with every wait */
    uint64_t queued;          /* tasks so far */
    lochi_workers_waiter *waiters;
    loch_error failure; /* the first of `failed` */
    size_t failed;      /* tasks without a loch_task, since the last wait */
    bool is_ending;     /* nothing is taken from outside */
    bool is_cancelling; /* nor from inside */
    bool is_forked;     /* the threads are the parent's */
    lochi_fork_item in_forks;
    size_t threads; /* that run */
    lochi_worker list[];
};

extern _Thread_local lochi_worker *lochi_workers_self; /* of a thread that workers made; NULL elsewhere */

/* Retain and release the bookkeeping. */
loch_workers *lochi_workers_retain(loch_workers *workers);
void lochi_workers_release(loch_workers *workers);

/* Returns the calling thread's record if it runs a task of these workers, else NULL. */
lochi_worker *lochi_workers_find_self(const loch_workers *workers);

#endif
