/* SPDX-License-Identifier: MIT */
/* Memory that is registered with NCCL (nccl_memory.c). */
#ifndef COMM_NCCL_MEMORY_H
#define COMM_NCCL_MEMORY_H

#include "nccl_native.h"

/* Begins to observe the memory of the communicator's device. */
loch_status lochi_comm_memory_create(loch_comm *comm);

/* Ends all registrations and windows. */
void lochi_comm_memory_destroy(loch_comm *comm);

/* Registers the memory around the tensors of a call, if it is not registered and can be. The lock is not held. */
void lochi_comm_memory_need(loch_comm *comm, const comm_use *uses, size_t count);

/* Makes and ends windows. */
loch_status lochi_comm_memory_add_window(loch_comm *comm, loch_buffer *buffer);
loch_status lochi_comm_memory_remove_window(loch_comm *comm, loch_buffer *buffer);

/* Fills in the figures of registrations. */
void lochi_comm_memory_describe(const loch_comm *comm, loch_comm_info *out);

#endif
