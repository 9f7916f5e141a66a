/* SPDX-License-Identifier: MIT */
/* The end of simulated memory (object.c). */
#ifndef LOCHI_SIM_OBJECT_H
#define LOCHI_SIM_OBJECT_H

#include "device/sim/state.h"

/* Gives a reference back; the last one gives back the memory. NULL does nothing. */
void lochi_sim_object_release(lochi_sim_object *object);

/* Takes a span away and frees it. Work that is queued on it is reported and will do nothing; `how` says what became of the
 * span. */
void lochi_sim_span_remove(lochi_sim *sim, lochi_sim_span *span, const char *how);

/* In the child of a fork: shares nothing of the device with the parent any more. */
void lochi_sim_objects_forked(lochi_sim *sim);

#endif
