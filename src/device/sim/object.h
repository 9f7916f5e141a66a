/* SPDX-License-Identifier: MIT */
/* The end of simulated memory (object.c). */
#ifndef LOCHI_SIM_OBJECT_H
#define LOCHI_SIM_OBJECT_H

#include "device/sim/state.h"

/* Releases a reference. The last release frees the memory. NULL does nothing. */
void lochi_sim_object_release(lochi_sim_object *object);

/* Returns E_INVALID, and reports it, if a strict device would end a span that queued work uses. */
loch_status lochi_sim_span_refuse(lochi_sim *sim, const lochi_sim_span *span, const char *how);

/* Removes a span and frees it. Work queued on the span is reported and will have no effect; `how` says how the span
 * ended. */
void lochi_sim_span_remove(lochi_sim *sim, lochi_sim_span *span, const char *how);

/* Detaches all memory of the device from the parent's. Called in the child of a fork. */
void lochi_sim_objects_forked(lochi_sim *sim);

#endif
