/* SPDX-License-Identifier: MIT */
/* Locks with ranks: a mutex, and in builds with assertions a thread's stack of what it holds. Two locks of one rank are
 * taken in rising address. */
#include "base/lock.h"
#include "base/room.h"
#include <assert.h>
#include <stdint.h>

#ifndef NDEBUG
static void lock_note_taken(const lochi_lock *lock)
{
    lochi_room *room = lochi_room_get();
    if (!room) return; /* it is not noted, and not checked */
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
    if (!room) return;
    unsigned at = room->lock_depth;
    while (at && room->locks[at - 1] != lock)
        at--;
    if (!at) return; /* taken while there was no room */
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
