/* SPDX-License-Identifier: MIT */
/* The limit of each seat (engine_limits.c). */
#ifndef LOCHI_ENGINE_LIMITS_H
#define LOCHI_ENGINE_LIMITS_H

#include "engine/engine_state.h"

/* Checks the wishes for a seat without calling a device. */
loch_status lochi_engine_check_wish(const loch_engine_device *wish);

/* Computes the limits of all seats before any memory is taken. The devices of the seats are open. `wishes` has one
 * entry for each seat. */
loch_status lochi_engine_set_limits(loch_engine *engine, const loch_engine_device *wishes);

#endif
