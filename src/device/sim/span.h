/* SPDX-License-Identifier: MIT */
/* Spans at addresses of simulated devices (span.c). Every function needs the lock of the simulator held. */
#ifndef LOCHI_SIM_SPAN_H
#define LOCHI_SIM_SPAN_H

#include "device/sim/state.h"

/* Returns the span of a device that holds `address`, or NULL. */
lochi_sim_span *lochi_sim_span_find(const lochi_sim *sim, uintptr_t address);

/* Returns the span that holds `address` for work of `sim`: a span of `sim`, or of another device that gives `sim`
 * access. With `any_device` every device gives access. NULL if there is no such span. */
lochi_sim_span *lochi_sim_span_reach(const lochi_sim *sim, uintptr_t address, bool any_device);

/* Returns whether all of a host range is page-locked for the device. */
bool lochi_sim_is_pinned(const lochi_sim *sim, const void *address, size_t bytes);

#endif
