/* SPDX-License-Identifier: MIT */
/* What a lock is made of: its rank, its mutex and its owner. base/lock.h takes and drops locks, base/fork.h lists them. */
#ifndef LOCHI_LOCK_STATE_H
#define LOCHI_LOCK_STATE_H

#include "base/thread_own.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef enum lochi_rank {
    LOCHI_RANK_NONE,   /* held around functions of users, which take other locks as they like: no order is checked */
    LOCHI_RANK_ENGINE, /* an engine's contexts and calls; held while tasks are queued, and while NCCL is set up */
    LOCHI_RANK_TIMELINE_TIMES, /* who asks devices for the times of spans; held while it waits for them */
    LOCHI_RANK_TIMELINE,       /* the threads of a timeline; held for list operations alone */
    LOCHI_RANK_STREAM_POOL,    /* what a pool of streams keeps; held for list operations alone */
    LOCHI_RANK_WORKER_WAITS,   /* what workers sleep for; held while one looks whether that can end */
    LOCHI_RANK_WORKERS,        /* a queue of tasks; nothing is called under it */
    LOCHI_RANK_SCRATCH,        /* a pool of buffers, a workspace */
    LOCHI_RANK_BUFFERS,        /* uses of buffers, and buffers that wait for them; held for list operations alone */
    LOCHI_RANK_REGISTRY,       /* the registry of allocators */
    LOCHI_RANK_ALLOCATOR, /* an allocator's figures and lists: one rank for each depth of wrapping, outer ones first */
    LOCHI_RANK_POOLS = LOCHI_RANK_ALLOCATOR + 32, /* the list of pools */
    LOCHI_RANK_STREAM_LISTENERS,                  /* who hears of streams that go; held around the calls */
    LOCHI_RANK_MEMORY,                            /* an allocator's own state */
    LOCHI_RANK_FAMILY,                            /* what parents and children hold; held for arithmetic alone */
    LOCHI_RANK_TAGS,                              /* the table of tags */
    LOCHI_RANK_OBSERVERS,                          /* the list of observers */
    LOCHI_RANK_DEVICES,                           /* the table of open devices; held while one is opened */
    LOCHI_RANK_DRIVERS,                           /* the table of drivers */
    LOCHI_RANK_DEVICE,                            /* a device's thread-default streams */
    LOCHI_RANK_CUDA,                              /* the loading of libcuda */
    LOCHI_RANK_LIBRARIES,                         /* the loading of cuBLAS and NCCL */
    LOCHI_RANK_CPU,                               /* the CPU driver's handles */
    LOCHI_RANK_SIM,     /* all state of all simulated devices, which share events and memory */
    LOCHI_RANK_RANGES,  /* the table of ranges */
    LOCHI_RANK_OPTIONS, /* option values */
    LOCHI_RANK_THREADS, /* the slots of threads */
    LOCHI_RANK_LOG,     /* the log hook */
    LOCHI_RANK_LEAF,    /* nothing is called under them; not checked */
    LOCHI_RANK_COUNT
} lochi_rank;

typedef struct lochi_lock {
    pthread_mutex_t mutex;
    lochi_rank rank;
    atomic_bool is_listed;           /* known to forks: from before it is first taken to its end */
    bool is_kept, is_ending;         /* by a fork that is under way; it waits for that: under the list's mutex */
    _Atomic(const void *) owner;     /* lochi_lock_self of the thread that holds it; NULL: none. A thread finds itself
                                   * there only if it wrote it */
    struct lochi_lock *next, **link; /* in the list of its rank (base/fork.c) */
} lochi_lock;

#define LOCHI_LOCK_INITIALIZER(its_rank)                                                                               \
    {                                                                                                                  \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .rank = its_rank                                                           \
    }

/* Returns what stands for the calling thread while it lives; in a child of a fork, for the thread that forked. */
static inline const void *lochi_lock_self(void)
{
    return &lochi_thread_slot_plus_one;
}

/* Tells whether the calling thread holds the lock. */
static inline bool lochi_lock_is_mine(const lochi_lock *lock)
{
    return atomic_load_explicit(&lock->owner, memory_order_relaxed) == lochi_lock_self();
}

#endif
