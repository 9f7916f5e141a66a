/* SPDX-License-Identifier: MIT */
/* Who may be inside an engine: locks of seats, held by threads, and the count of contexts.
 *
 * A seat's lock is a plain mutex with the number of its owner beside it. Only the owner finds its own number there, so a thread
 * that does not hold the lock is told so before it touches the mutex. */
#include "base/fail.h"
#include "base/thread.h"
#include "engine/engine.h"

/* --- locks of seats --- */

void lochi_seat_lock_init(lochi_seat_lock *lock)
{
    pthread_mutex_init(&lock->mutex, NULL);
}

void lochi_seat_lock_fini(lochi_seat_lock *lock)
{
    pthread_mutex_destroy(&lock->mutex);
}

static loch_status lock_find(loch_engine *engine, loch_seat number, lochi_seat_lock **out)
{
    lochi_seat *seat = lochi_engine_seat(engine, number);
    if (!seat)
        return LOCH_FAIL(NOT_FOUND, "there is no seat %u: the engine has %u", number.number, loch_engine_count(engine));
    *out = &seat->lock;
    return LOCH_OK;
}

loch_status loch_engine_lock(loch_engine *engine, loch_seat seat)
{
    lochi_seat_lock *lock;
    LOCH_TRY_RETURN(lock_find(engine, seat, &lock));
    const uint64_t self = lochi_thread_number();
    if (atomic_load_explicit(&lock->owner, memory_order_relaxed) != self) {
        pthread_mutex_lock(&lock->mutex);
        atomic_store_explicit(&lock->owner, self, memory_order_relaxed);
        atomic_store_explicit(&lock->is_outside, lochi_engine_find_worker(engine) == engine->count,
                              memory_order_relaxed);
    }
    lock->depth++;
    return LOCH_OK;
}

loch_status loch_engine_unlock(loch_engine *engine, loch_seat seat)
{
    lochi_seat_lock *lock;
    LOCH_TRY_RETURN(lock_find(engine, seat, &lock));
    if (atomic_load_explicit(&lock->owner, memory_order_relaxed) != lochi_thread_number())
        return LOCH_FAIL(WRONG_THREAD, "this thread does not hold the lock of seat %u", seat.number);
    if (--lock->depth) return LOCH_OK;
    atomic_store_explicit(&lock->is_outside, false, memory_order_relaxed);
    atomic_store_explicit(&lock->owner, 0, memory_order_relaxed);
    pthread_mutex_unlock(&lock->mutex);
    return LOCH_OK;
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
