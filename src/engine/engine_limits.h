/* SPDX-License-Identifier: MIT */
/* How much each seat may hold (engine_limits.c). */
#ifndef LOCHI_ENGINE_LIMITS_H
#define LOCHI_ENGINE_LIMITS_H

#include "engine/engine_state.h"

/* Checks what is wanted of a seat, without asking a device. */
loch_status lochi_engine_check_wish(const loch_engine_device *wish);

/* Computes the limits of all seats, whose devices are open, before any memory is taken. `wishes` has one entry for each. */
loch_status lochi_engine_set_limits(loch_engine *engine, const loch_engine_device *wishes);

#endif
