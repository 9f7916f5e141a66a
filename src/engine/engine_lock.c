/* SPDX-License-Identifier: MIT */
/* Locks of seats, and the count of contexts of an engine.
 *
 * A seat's lock is a plain mutex with the number of its owner thread beside it. Only the owner finds its own number
 * there. So a thread that does not hold the lock gets E_WRONG_THREAD before it touches the mutex. Each loch_engine_lock
 * begins its own stay (device/current.h). So locks of several seats may be dropped in any order, and a lock may be
 * taken again while another seat's device is current. */
#include "engine/engine_lock.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/thread.h"
#include "device/driver.h"

/* --- locks of seats --- */

void lochi_seat_lock_init(lochi_seat_lock *lock)
{
    pthread_mutex_init(&lock->mutex, NULL);
}

/* Frees stays that a worker left behind when it ended with the lock held. The thread of the worker no longer exists. */
void lochi_seat_lock_fini(lochi_seat_lock *lock)
{
    while (lock->stays) {
        lochi_lock_stay *stay = lock->stays;
        lock->stays = stay->below;
        lochi_free(stay);
    }
    pthread_mutex_destroy(&lock->mutex);
}

static loch_status lock_find(loch_engine *engine, loch_seat number, lochi_seat **out)
{
    *out = lochi_engine_seat(engine, number);
    if (*out) return LOCH_OK;
    return LOCH_FAIL(NOT_FOUND, "there is no seat %u: the engine has %u seats", number.number,
                     engine ? engine->count : 0);
}

void lochi_seat_lock_take(loch_engine *engine, loch_seat seat)
{
    lochi_seat_lock *lock = &engine->seats[seat.number].lock;
    const uint64_t self = lochi_thread_number();
    if (atomic_load_explicit(&lock->owner, memory_order_relaxed) != self) {
        pthread_mutex_lock(&lock->mutex);
        atomic_store_explicit(&lock->owner, self, memory_order_relaxed);
        atomic_store_explicit(&lock->is_outside, lochi_engine_find_worker(engine) == engine->count,
                              memory_order_relaxed);
    }
    lock->depth++;
}

loch_status lochi_seat_lock_drop(loch_engine *engine, loch_seat seat)
{
    lochi_seat_lock *lock = &engine->seats[seat.number].lock;
    if (atomic_load_explicit(&lock->owner, memory_order_relaxed) != lochi_thread_number())
        return LOCH_FAIL(WRONG_THREAD, "this thread does not hold the lock of seat %u", seat.number);
    if (--lock->depth) return LOCH_OK;
    atomic_store_explicit(&lock->is_outside, false, memory_order_relaxed);
    atomic_store_explicit(&lock->owner, 0, memory_order_relaxed);
    pthread_mutex_unlock(&lock->mutex);
    return LOCH_OK;
}

/* Makes the seat's device current. The lock is held. */
static loch_status lock_begin_stay(lochi_seat *seat)
{
    if (!lochi_device_enters(seat->device)) return LOCH_OK;
    lochi_lock_stay *stay = lochi_alloc(sizeof *stay);
    if (!stay) return LOCH_FAIL(HOST_MEMORY, "no host memory for the lock of a seat");
    const loch_status status = lochi_stay_begin(&stay->stay, seat->device);
    if (status != LOCH_OK) {
        lochi_free(stay);
        return status;
    }
    stay->below = seat->lock.stays;
    seat->lock.stays = stay;
    return LOCH_OK;
}

static void lock_end_stay(lochi_seat_lock *lock)
{
    lochi_lock_stay *stay = lock->stays;
    if (!stay) return;
    lock->stays = stay->below;
    lochi_stay_end(&stay->stay);
    lochi_free(stay);
}

loch_status loch_engine_lock(loch_engine *engine, loch_seat seat)
{
    lochi_seat *found;
    LOCH_TRY_RETURN(lock_find(engine, seat, &found));
    lochi_seat_lock_take(engine, seat);
    const loch_status status = lock_begin_stay(found);
    if (status == LOCH_OK) return LOCH_OK;
    const loch_status dropped = lochi_seat_lock_drop(engine, seat);
    (void)dropped; /* cannot fail: this thread holds the lock */
    return status;
}

loch_status loch_engine_unlock(loch_engine *engine, loch_seat seat)
{
    lochi_seat *found;
    LOCH_TRY_RETURN(lock_find(engine, seat, &found));
    if (atomic_load_explicit(&found->lock.owner, memory_order_relaxed) == lochi_thread_number())
        lock_end_stay(&found->lock);
    return lochi_seat_lock_drop(engine, seat);
}

bool lochi_engine_is_locked_outside(const loch_engine *engine)
{
    for (unsigned i = 0; i < engine->count; i++)
        if (atomic_load_explicit(&engine->seats[i].lock.is_outside, memory_order_relaxed)) return true;
    return false;
}

/* --- contexts --- */

static void lock_link(loch_engine *engine, lochi_engine_guest *guest)
{
    lochi_lock_assert_held(&engine->lock);
    *guest = (lochi_engine_guest){engine->guests, &engine->guests, lochi_thread_number()};
    if (guest->next) guest->next->link = &guest->next;
    engine->guests = guest;
    engine->contexts++;
}

/* Takes a context out of the list. The engine's lock is held, or this is the child of a fork. */
static void lock_unlink(loch_engine *engine, const lochi_engine_guest *guest)
{
    *guest->link = guest->next;
    if (guest->next) guest->next->link = guest->link;
    engine->contexts--;
}

loch_status lochi_engine_enter(loch_engine *engine, lochi_engine_guest *guest)
{
    lochi_lock_take(&engine->lock);
    /* while tasks are drained or finish, workers may still make contexts */
    const bool is_in = !engine->is_ending || lochi_engine_find_worker(engine) < engine->count;
    if (is_in) lock_link(engine, guest);
    lochi_lock_drop(&engine->lock);
    return is_in ? LOCH_OK : LOCH_FAIL(CANCELLED, "engine \"%.80s\" is closing", engine->name);
}

void lochi_engine_leave(loch_engine *engine, lochi_engine_guest *guest)
{
    lochi_lock_take(&engine->lock);
    lock_unlink(engine, guest);
    lochi_lock_drop(&engine->lock);
}

/* --- forks --- */

/* Frees a lock that another thread held at the fork. Keeps a lock that the calling thread holds. */
static void lock_forked(lochi_seat_lock *lock)
{
    const bool is_own = atomic_load_explicit(&lock->owner, memory_order_relaxed) == lochi_thread_number();
    lochi_seat_lock_init(lock);
    if (is_own) {
        pthread_mutex_lock(&lock->mutex);
        return;
    }
    atomic_store_explicit(&lock->owner, 0, memory_order_relaxed);
    atomic_store_explicit(&lock->is_outside, false, memory_order_relaxed);
    lock->depth = 0;
}

void lochi_engine_lock_forked(loch_engine *engine)
{
    const uint64_t self = lochi_thread_number();
    for (const lochi_engine_guest *guest = engine->guests, *next; guest; guest = next) {
        next = guest->next;
        if (guest->thread != self) lock_unlink(engine, guest);
    }
    for (unsigned i = 0; i < engine->count; i++)
        lock_forked(&engine->seats[i].lock);
}
