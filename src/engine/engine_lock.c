/* SPDX-License-Identifier: MIT */
/* Who may be inside an engine: locks of seats, held by threads, and the count of contexts.
 *
 * A seat's lock is a plain mutex with the number of its owner beside it. Only the owner finds its own number there, so a thread
 * that does not hold the lock is told so before it touches the mutex. Each loch_engine_lock has a stay of its own: locks of several seats
 * are given back in any order, and one may be taken again while another seat is current. */
#include "base/fail.h"
#include "base/heap.h"
#include "base/thread.h"
#include "device/device.h"
#include "engine/engine.h"

/* --- locks of seats --- */

struct lochi_lock_stay {
    struct lochi_lock_stay *below; /* of the same lock */
    lochi_stay stay;
};

void lochi_seat_lock_init(lochi_seat_lock *lock)
{
    pthread_mutex_init(&lock->mutex, NULL);
}

/* A worker that has ended with the lock held has left its stays: its thread is no more. */
void lochi_seat_lock_fini(lochi_seat_lock *lock)
{
    while (lock->stays) {
        struct lochi_lock_stay *stay = lock->stays;
        lock->stays = stay->below;
        lochi_free(stay);
    }
    pthread_mutex_destroy(&lock->mutex);
}

/* What others hold is free, what the calling thread holds stays its own. */
void lochi_seat_lock_forked(lochi_seat_lock *lock)
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

static loch_status lock_find(loch_engine *engine, loch_seat number, lochi_seat **out)
{
    *out = lochi_engine_seat(engine, number);
    if (*out) return LOCH_OK;
    return LOCH_FAIL(NOT_FOUND, "there is no seat %u: the engine has %u", number.number, loch_engine_count(engine));
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

/* Makes the seat's device current; the lock is held. */
static loch_status lock_begin_stay(lochi_seat *seat)
{
    if (!lochi_device_enters(seat->device)) return LOCH_OK;
    struct lochi_lock_stay *stay = lochi_alloc(sizeof *stay);
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
    struct lochi_lock_stay *stay = lock->stays;
    if (!stay) return;
    lock->stays = stay->below;
    lochi_stay_end(&stay->stay);
    lochi_free(stay);
}

loch_status loch_engine_lock(loch_engine *engine, loch_seat number)
{
    lochi_seat *seat;
    LOCH_TRY_RETURN(lock_find(engine, number, &seat));
    lochi_seat_lock_take(engine, number);
    const loch_status status = lock_begin_stay(seat);
    if (status == LOCH_OK) return LOCH_OK;
    const loch_status dropped = lochi_seat_lock_drop(engine, number);
    (void)dropped; /* this thread holds it */
    return status;
}

loch_status loch_engine_unlock(loch_engine *engine, loch_seat number)
{
    lochi_seat *seat;
    LOCH_TRY_RETURN(lock_find(engine, number, &seat));
    if (atomic_load_explicit(&seat->lock.owner, memory_order_relaxed) == lochi_thread_number())
        lock_end_stay(&seat->lock);
    return lochi_seat_lock_drop(engine, number);
}

bool lochi_engine_is_locked_outside(const loch_engine *engine)
{
    for (unsigned i = 0; i < engine->count; i++)
        if (atomic_load_explicit(&engine->seats[i].lock.is_outside, memory_order_relaxed)) return true;
    return false;
}

/* --- contexts --- */

unsigned lochi_engine_find_worker(const loch_engine *engine)
{
    unsigned seat = 0;
    while (seat < engine->count && loch_workers_get_current(engine->seats[seat].workers) == SIZE_MAX)
        seat++;
    return seat;
}

loch_status lochi_engine_enter(loch_engine *engine)
{
    lochi_lock_take(&engine->lock);
    /* Tasks that are drained, or run to their end, may work as before. */
    const bool is_in = !engine->is_ending || lochi_engine_find_worker(engine) < engine->count;
    if (is_in) engine->contexts++;
    lochi_lock_drop(&engine->lock);
    return is_in ? LOCH_OK : LOCH_FAIL(CANCELLED, "engine \"%.80s\" is ending", engine->name);
}

void lochi_engine_leave(loch_engine *engine)
{
    lochi_lock_take(&engine->lock);
    engine->contexts--;
    lochi_lock_drop(&engine->lock);
}
