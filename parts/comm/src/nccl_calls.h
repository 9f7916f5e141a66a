/* SPDX-License-Identifier: MIT */
/* Calls of NCCL (nccl_calls.c). */
#ifndef COMM_NCCL_CALLS_H
#define COMM_NCCL_CALLS_H

#include "nccl_native.h"

/* Tells whether NCCL reduces a type. */
loch_status lochi_comm_nccl_can_reduce(const loch_comm *comm, loch_dtype dtype, loch_comm_op op);

/* Queues a call; inside a group keeps it until the end. */
loch_status lochi_comm_nccl_run(loch_comm *comm, const comm_call *call);

/* Queues the calls of a group, unless `status` says that one of them failed. */
loch_status lochi_comm_nccl_end_group(loch_comm *comm, loch_status status);

#endif
