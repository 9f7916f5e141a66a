/* SPDX-License-Identifier: MIT */
/* Locks of seats, and the count of contexts of an engine (engine_lock.c). */
#ifndef LOCHI_ENGINE_LOCK_H
#define LOCHI_ENGINE_LOCK_H

#include "engine/engine_state.h"

void lochi_seat_lock_init(lochi_seat_lock *lock);
void lochi_seat_lock_fini(lochi_seat_lock *lock);

/* Take and drop the lock of a seat. The current device does not change. The seat must exist. E_WRONG_THREAD: the
 * calling thread does not hold the lock. */
void lochi_seat_lock_take(loch_engine *engine, loch_seat seat);
loch_status lochi_seat_lock_drop(loch_engine *engine, loch_seat seat);

/* Tells whether a thread that is not a worker of the engine holds the lock of a seat. */
bool lochi_engine_is_locked_outside(const loch_engine *engine);

/* Count a context of the calling thread in and out. The engine cannot be closed while it counts a context.
 * E_CANCELLED: the engine is closing. */
loch_status lochi_engine_enter(loch_engine *engine, lochi_engine_guest *guest);
void lochi_engine_leave(loch_engine *engine, lochi_engine_guest *guest);

/* In the child of a fork: frees locks that other threads held, and forgets the contexts of other threads, which are
 * never destroyed in the child. */
void lochi_engine_lock_forked(loch_engine *engine);

#endif
