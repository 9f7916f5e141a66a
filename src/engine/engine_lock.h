/* SPDX-License-Identifier: MIT */
/* Who may be inside an engine (engine_lock.c). */
#ifndef LOCHI_ENGINE_LOCK_H
#define LOCHI_ENGINE_LOCK_H

#include "engine/engine_state.h"

void lochi_seat_lock_init(lochi_seat_lock *lock);
void lochi_seat_lock_fini(lochi_seat_lock *lock);

/* Take and give back the lock of a seat, and leave the current device alone. `seat` is there. E_WRONG_THREAD. */
void lochi_seat_lock_take(loch_engine *engine, loch_seat seat);
loch_status lochi_seat_lock_drop(loch_engine *engine, loch_seat seat);

/* Tells whether a thread that is no worker of the engine holds the lock of a seat. */
bool lochi_engine_is_locked_outside(const loch_engine *engine);

/* Count a context of the calling thread in and out: the engine is not ended while one is in. E_CANCELLED when it is ending. */
loch_status lochi_engine_enter(loch_engine *engine, lochi_engine_guest *guest);
void lochi_engine_leave(loch_engine *engine, lochi_engine_guest *guest);

/* In the child of a fork: frees locks of other threads, and forgets their contexts, which will never be ended here. */
void lochi_engine_lock_forked(loch_engine *engine);

#endif
