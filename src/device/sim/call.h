/* SPDX-License-Identifier: MIT */
/* The frame around every driver call of a simulated device (call.c). */
#ifndef LOCHI_SIM_CALL_H
#define LOCHI_SIM_CALL_H

#include "device/sim/state.h"

/* Begins a driver call: takes the lock, counts and charges the call, moves a seeded clock. On a fault or a lost
 * device returns the failure with the lock dropped. */
loch_status lochi_sim_begin(lochi_sim *sim, loch_driver_call call, size_t bytes);

/* Drops the lock and returns the status. */
loch_status lochi_sim_end(loch_status status);

/* Counts and charges a nested call. Under the lock. */
loch_status lochi_sim_count(lochi_sim *sim, loch_driver_call call, size_t bytes);

#endif
