/* SPDX-License-Identifier: MIT */
/* What lies at an address of a simulated device (span.c). All under the lock of the simulator. */
#ifndef LOCHI_SIM_SPAN_H
#define LOCHI_SIM_SPAN_H

#include "device/sim/state.h"

/* Returns the span of a device that holds `address`, or NULL. */
lochi_sim_span *lochi_sim_span_find(const lochi_sim *sim, uintptr_t address);

/* Returns the span that holds `address` for work of `sim`: its own, or one of another device that lets it in. `any_device`:
 * every device lets it in. */
lochi_sim_span *lochi_sim_span_reach(const lochi_sim *sim, uintptr_t address, bool any_device);

/* Tells whether all of a host range is page-locked for the device. */
bool lochi_sim_is_pinned(const lochi_sim *sim, const void *address, size_t bytes);

#endif
