/* SPDX-License-Identifier: MIT */
/* Locks with ranks: a mutex, and in builds with assertions a stack for each thread of the locks that it holds, sorted
 * by rank. Two locks of one rank are taken in rising address.
 *
 * The lock of an allocator's state is held for so short a time that a waiting thread spins for a moment before it
 * sleeps: waking a thread takes longer than the holder needs. */
#include "base/lock.h"
#include "base/fork.h"
#include "kit/hint.h"
#include "base/room.h"
#include <assert.h>
#include <stdint.h>

#define LOCK_SPINS 200

#ifndef NDEBUG
static bool lock_is_checked(const lochi_lock *lock)
{
    return lock->rank != LOCHI_RANK_NONE && lock->rank != LOCHI_RANK_LEAF;
}

/* Tells whether a thread that holds `first` may wait for `second`. */
static bool lock_is_before(const lochi_lock *first, const lochi_lock *second)
{
    return first->rank < second->rank || (first->rank == second->rank && (uintptr_t)first < (uintptr_t)second);
}

/* Enters a lock in the thread's stack. The thread waited for it if `is_awaited`. */
static void lock_note_taken(const lochi_lock *lock, bool is_awaited)
{
    lochi_room *room = lochi_room_get();
    if (!room || !lock_is_checked(lock)) return; /* without a room the lock is neither recorded nor checked */
    assert(room->lock_depth < LOCHI_ROOM_LOCKS);
    unsigned at = room->lock_depth++;
    for (; at && !lock_is_before(room->locks[at - 1], lock); at--) {
        assert(!is_awaited);
        room->locks[at] = room->locks[at - 1];
    }
    room->locks[at] = lock;
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
static void lock_note_taken(const lochi_lock *lock, bool is_awaited)
{
    (void)lock;
    (void)is_awaited;
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

/* Waits a moment for a lock that is not held for long. */
static LOCHI_RARE void lock_spin(const lochi_lock *lock)
{
    if (lock->rank != LOCHI_RANK_MEMORY) return;
    for (int i = 0; i < LOCK_SPINS && atomic_load_explicit(&lock->owner, memory_order_relaxed); i++)
        lochi_hint_pause();
}

void lochi_lock_take(lochi_lock *lock)
{
    if (LOCHI_UNLIKELY(!atomic_load_explicit(&lock->is_listed, memory_order_relaxed))) lochi_fork_list(lock);
    lock_note_taken(lock, true);
    if (LOCHI_UNLIKELY(atomic_load_explicit(&lock->owner, memory_order_relaxed) != NULL)) lock_spin(lock);
    pthread_mutex_lock(&lock->mutex);
    atomic_store_explicit(&lock->owner, lochi_lock_self(), memory_order_relaxed);
}

bool lochi_lock_try(lochi_lock *lock)
{
    if (LOCHI_UNLIKELY(!atomic_load_explicit(&lock->is_listed, memory_order_relaxed))) lochi_fork_list(lock);
    if (pthread_mutex_trylock(&lock->mutex) != 0) return false;
    lock_note_taken(lock, false);
    atomic_store_explicit(&lock->owner, lochi_lock_self(), memory_order_relaxed);
    return true;
}

/* The unlock is the last access: the thread that gets the lock next may free it. */
void lochi_lock_drop(lochi_lock *lock)
{
    lock_note_dropped(lock);
    atomic_store_explicit(&lock->owner, NULL, memory_order_relaxed);
    pthread_mutex_unlock(&lock->mutex);
}

void lochi_lock_init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
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
