/* SPDX-License-Identifier: MIT */
/* The members of a lock: rank, mutex and owner. base/lock.h takes and drops locks, base/fork.h lists them. */
#ifndef LOCHI_LOCK_STATE_H
#define LOCHI_LOCK_STATE_H

#include "base/thread_own.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef enum lochi_rank {
    LOCHI_RANK_NONE,   /* held while users' functions run, which may take any other lock: no order is checked */
    LOCHI_RANK_ENGINE, /* an engine's contexts and calls; held while tasks are queued and while NCCL is set up */
    LOCHI_RANK_TIMELINE_TIMES, /* reading the times of spans from devices; held while it waits for them */
    LOCHI_RANK_TIMELINE,       /* the threads of a timeline; held for list operations only */
    LOCHI_RANK_STREAM_POOL,    /* the cached streams of a stream pool; held for list operations only */
    LOCHI_RANK_WORKER_WAITS,   /* what workers wait for; held while a worker tests whether its wait can end */
    LOCHI_RANK_WORKERS,        /* a queue of tasks; nothing is called under it */
    LOCHI_RANK_SCRATCH,        /* a pool of buffers, a workspace */
    LOCHI_RANK_BUFFERS,        /* uses of buffers, and buffers that wait for them; held for list operations only */
    LOCHI_RANK_REGISTRY,       /* the registry of allocators */
    LOCHI_RANK_ALLOCATOR, /* an allocator's statistics and lists: one rank for each wrapping depth, outer ones first */
    LOCHI_RANK_POOLS = LOCHI_RANK_ALLOCATOR + 32, /* the list of pools */
    LOCHI_RANK_STREAM_LISTENERS,                  /* listeners to the end of streams; held while they are called */
    LOCHI_RANK_SUPPLY,                            /* a pool's memory from the device; held during driver calls */
    LOCHI_RANK_MEMORY,                            /* an allocator's own state; held for less than a microsecond or so */
    LOCHI_RANK_FAMILY,    /* the memory that parents and children hold; held for arithmetic only */
    LOCHI_RANK_TAGS,      /* the table of tags */
    LOCHI_RANK_OBSERVERS, /* the list of observers */
    LOCHI_RANK_DEVICES,   /* the table of open devices; held while a device is opened */
    LOCHI_RANK_DRIVERS,   /* the table of drivers */
    LOCHI_RANK_DEVICE,    /* a device's thread-default streams */
    LOCHI_RANK_CUDA,      /* loading libcuda */
    LOCHI_RANK_LIBRARIES, /* loading cuBLAS and NCCL */
    LOCHI_RANK_CPU,       /* the CPU driver's handles */
    LOCHI_RANK_SIM,       /* all state of all simulated devices: they share events and memory */
    LOCHI_RANK_RANGES,    /* the table of ranges */
    LOCHI_RANK_OPTIONS,   /* option values */
    LOCHI_RANK_THREADS,   /* the slots of threads */
    LOCHI_RANK_RECORDER,  /* chunks and names of a recording; held while a file is extended */
    LOCHI_RANK_LOG,       /* the log hook */
    LOCHI_RANK_LEAF,      /* no function is called under such a lock; not checked */
    LOCHI_RANK_COUNT
} lochi_rank;

typedef struct lochi_lock {
    pthread_mutex_t mutex;
    lochi_rank rank;
    atomic_bool is_listed;   /* in the list for forks: from before the first take until the end */
    bool is_kept, is_ending; /* held by a fork; its end waits for a fork. Both under the mutex of the list */
    /* lochi_lock_self of the thread that holds the lock; NULL if free. A thread reads its own value only if it wrote
     * it. */
    _Atomic(const void *) owner;
    struct lochi_lock *next, **link; /* list of the locks of one rank (base/fork.c) */
} lochi_lock;

#define LOCHI_LOCK_INITIALIZER(its_rank)                                                                               \
    {                                                                                                                  \
        .mutex = PTHREAD_MUTEX_INITIALIZER, .rank = its_rank                                                           \
    }

/* Returns an address that identifies the calling thread while it runs. In the child of a fork the address stays that
 * of the thread that forked. */
static inline const void *lochi_lock_self(void)
{
    return &lochi_thread_slot_plus_one;
}

/* Returns whether the calling thread holds the lock. */
static inline bool lochi_lock_is_mine(const lochi_lock *lock)
{
    return atomic_load_explicit(&lock->owner, memory_order_relaxed) == lochi_lock_self();
}

#endif
