/* SPDX-License-Identifier: MIT */
/* Operations: work in the queue of a simulated stream (op.c). Every function needs the lock of the simulator held. */
#ifndef LOCHI_SIM_OP_H
#define LOCHI_SIM_OP_H

#include "device/sim/state.h"

/* Creates an operation from a request: finds its memory (E_OUT_OF_RANGE) and allocates what it needs. Queues
 * nothing. */
loch_status lochi_sim_op_create(lochi_sim *sim, const lochi_sim_request *request, lochi_sim_op **out);

/* Frees an operation that is in no queue. NULL does nothing. */
void lochi_sim_op_destroy(lochi_sim_op *op);

/* Queues an operation on a stream that has been entered, and checks its uses. E_INVALID: the device is strict, and the
 * checker has found something; the operation is queued and has no effect. Cannot fail otherwise. */
loch_status lochi_sim_op_queue(lochi_sim_stream *stream, lochi_sim_op *op);

#endif
