/* SPDX-License-Identifier: MIT */
/* The checker: finds memory that two streams use without order between them (check.c). Every function needs the lock
 * of the simulator held. */
#ifndef LOCHI_SIM_CHECK_H
#define LOCHI_SIM_CHECK_H

#include "device/sim/state.h"

/* Checks one use of an operation against earlier uses of its object, and stores it. */
void lochi_sim_check_use(lochi_sim_stream *stream, const lochi_sim_op *op, const lochi_sim_use *use, uint64_t epoch);

/* Reports a copy whose source and target overlap. */
void lochi_sim_check_overlap(lochi_sim_stream *stream, const lochi_sim_op *op);

/* Reports that a span ended while `op` still used it. `how` says how the span ended. */
void lochi_sim_check_gone(lochi_sim *sim, const lochi_sim_span *span, const lochi_sim_op *op, const char *how);

/* Forgets all uses of an object. */
void lochi_sim_shadow_drop(lochi_sim_shadow *shadow);

#endif
