/* SPDX-License-Identifier: MIT */
/* The clocks of simulated devices (clock.c). Every function needs the lock of the simulator held. */
#ifndef LOCHI_SIM_CLOCK_H
#define LOCHI_SIM_CLOCK_H

#include "device/sim/state.h"

/* Makes every operation up to the present time take effect. May drop the lock meanwhile. */
void lochi_sim_settle(lochi_sim *sim);

/* Moves a seeded clock by the time that the host spends in a call, and settles. */
void lochi_sim_tick(lochi_sim *sim);

/* Moves the clock to `ns` or later, and settles. */
void lochi_sim_move_clock(lochi_sim *sim, uint64_t ns);

/* Moves the clock until the operation with the key is done. E_DRIVER inside a queued function, which would wait for
 * itself. */
loch_status lochi_sim_wait(lochi_sim *sim, lochi_sim_key key);

/* Returns whether the operation with the key has taken effect. */
bool lochi_sim_is_done(const lochi_sim *sim, lochi_sim_key key);

/* Ends the queued functions that other threads were running. Called in the child of a fork. */
void lochi_sim_clock_forked(lochi_sim *sim);

#endif
