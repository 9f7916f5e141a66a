/* SPDX-License-Identifier: MIT */
/* Operations: work in the queue of a simulated stream (op.c). All under the lock of the simulator. */
#ifndef LOCHI_SIM_OP_H
#define LOCHI_SIM_OP_H

#include "device/sim/state.h"

/* Makes an operation from a request: finds its memory (E_OUT_OF_RANGE), takes what it needs, queues nothing. */
loch_status lochi_sim_op_create(lochi_sim *sim, const lochi_sim_request *request, lochi_sim_op **out);

/* Frees an operation that is in no queue; NULL does nothing. */
void lochi_sim_op_destroy(lochi_sim_op *op);

/* Queues an operation behind a stream that has been entered, and checks its uses. Cannot fail. */
void lochi_sim_op_queue(lochi_sim_stream *stream, lochi_sim_op *op);

#endif
