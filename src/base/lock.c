/* SPDX-License-Identifier: MIT */
/* Locks with ranks: a mutex, and in builds with assertions a stack for each thread of the locks that it holds. Two
 * locks of one rank are taken in rising address. */
#include "base/lock.h"
#include "base/fork.h"
#include "base/hint.h"
#include "base/room.h"
#include <assert.h>
#include <stdint.h>

#ifndef NDEBUG
static bool lock_is_checked(const lochi_lock *lock)
{
    return lock->rank != LOCHI_RANK_NONE && lock->rank != LOCHI_RANK_LEAF;
}

static void lock_note_taken(const lochi_lock *lock)
{
    lochi_room *room = lochi_room_get();
    if (!room || !lock_is_checked(lock)) return; /* without a room the lock is neither recorded nor checked */
    assert(room->lock_depth < LOCHI_ROOM_LOCKS);
    if (room->lock_depth) {
        const lochi_lock *last = room->locks[room->lock_depth - 1];
        assert(last->rank < lock->rank || (last->rank == lock->rank && (uintptr_t)last < (uintptr_t)lock));
    }
    room->locks[room->lock_depth++] = lock;
}

static void lock_note_dropped(const lochi_lock *lock)
{
    lochi_room *room = lochi_room_own;
    if (!room || !lock_is_checked(lock)) return;
    unsigned at = room->lock_depth;
    while (at && room->locks[at - 1] != lock)
        at--;
    if (!at) return; /* taken while the thread had no room */
    for (; at < room->lock_depth; at++)
        room->locks[at - 1] = room->locks[at];
    room->lock_depth--;
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
    atomic_init(&lock->owner, NULL);
    atomic_init(&lock->is_listed, false);
    lochi_fork_list(lock);
}

void lochi_lock_fini(lochi_lock *lock)
{
    lochi_fork_unlist(lock);
    pthread_mutex_destroy(&lock->mutex);
}

void lochi_lock_take(lochi_lock *lock)
{
    if (LOCHI_UNLIKELY(!atomic_load_explicit(&lock->is_listed, memory_order_relaxed))) lochi_fork_list(lock);
    lock_note_taken(lock);
    pthread_mutex_lock(&lock->mutex);
    atomic_store_explicit(&lock->owner, lochi_lock_self(), memory_order_relaxed);
}

void lochi_lock_drop(lochi_lock *lock)
{
    atomic_store_explicit(&lock->owner, NULL, memory_order_relaxed);
    pthread_mutex_unlock(&lock->mutex);
    lock_note_dropped(lock);
}

void lochi_lock_wait(lochi_lock *lock, pthread_cond_t *condition)
{
    atomic_store_explicit(&lock->owner, NULL, memory_order_relaxed);
    pthread_cond_wait(condition, &lock->mutex);
    atomic_store_explicit(&lock->owner, lochi_lock_self(), memory_order_relaxed);
}

bool lochi_lock_wait_until(lochi_lock *lock, pthread_cond_t *condition, const struct timespec *until)
{
    atomic_store_explicit(&lock->owner, NULL, memory_order_relaxed);
    const int error = pthread_cond_timedwait(condition, &lock->mutex, until);
    atomic_store_explicit(&lock->owner, lochi_lock_self(), memory_order_relaxed);
    return error == 0;
}
