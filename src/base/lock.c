/* SPDX-License-Identifier: MIT */
/* Locks with ranks: a mutex, and in builds with assertions a thread's stack of what it holds. Two locks of one rank are
 * taken in rising address. */
#include "base/lock.h"
#include <assert.h>
#include <stdint.h>

#ifndef NDEBUG
#define LOCK_DEPTH_MAX 16
static _Thread_local const lochi_lock *lock_held[LOCK_DEPTH_MAX];
static _Thread_local unsigned lock_depth;

static void lock_note_taken(const lochi_lock *lock)
{
    assert(lock_depth < LOCK_DEPTH_MAX);
    if (lock_depth) {
        const lochi_lock *last = lock_held[lock_depth - 1];
        assert(last->rank < lock->rank || (last->rank == lock->rank && (uintptr_t)last < (uintptr_t)lock));
    }
    lock_held[lock_depth++] = lock;
}

static void lock_note_dropped(const lochi_lock *lock)
{
    unsigned at = lock_depth;
    while (at && lock_held[at - 1] != lock)
        at--;
    assert(at);
    for (; at < lock_depth; at++)
        lock_held[at - 1] = lock_held[at];
    lock_depth--;
}
#else
static void lock_note_taken(const lochi_lock *lock)
{
    (void)lock;
}

static void lock_note_dropped(const lochi_lock *lock)
{
    (void)lock;
}
#endif

void lochi_lock_init(lochi_lock *lock, lochi_rank rank)
{
    pthread_mutex_init(&lock->mutex, NULL);
    lock->rank = rank;
}

void lochi_lock_fini(lochi_lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

void lochi_lock_take(lochi_lock *lock)
{
    lock_note_taken(lock);
    pthread_mutex_lock(&lock->mutex);
}

void lochi_lock_drop(lochi_lock *lock)
{
    pthread_mutex_unlock(&lock->mutex);
    lock_note_dropped(lock);
}
