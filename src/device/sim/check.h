/* SPDX-License-Identifier: MIT */
/* The checker: finds memory that two streams use without order between them (check.c). Every function needs the lock
 * of the simulator held. */
#ifndef LOCHI_SIM_CHECK_H
#define LOCHI_SIM_CHECK_H

#include "device/sim/state.h"

/* Checks uses of an operation against earlier uses of their objects, and stores them. A fault of neighbouring memory is
 * one finding, however many handles the memory has. */
void lochi_sim_check_uses(lochi_sim_stream *stream, const lochi_sim_op *op, const lochi_sim_use *uses, size_t count,
                          uint64_t epoch);

/* Returns E_INVALID with the sentence of the first finding of a strict device since the last call; LOCH_OK for none. */
loch_status lochi_sim_check_refuse(lochi_sim *sim);

/* Lets the call in progress succeed although a strict device has found something. */
void lochi_sim_check_forgive(lochi_sim *sim);

/* Reports a copy whose source and target overlap. */
void lochi_sim_check_overlap(lochi_sim_stream *stream, const lochi_sim_op *op);

/* Reports that a span ended while `op` still used it. `how` says how the span ended. */
void lochi_sim_check_gone(lochi_sim *sim, const lochi_sim_span *span, const lochi_sim_op *op, const char *how);

/* Forgets all uses of an object. */
void lochi_sim_shadow_drop(lochi_sim_shadow *shadow);

#endif
