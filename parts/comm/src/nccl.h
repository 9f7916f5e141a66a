/* SPDX-License-Identifier: MIT */
/* The engine on NCCL, and which file uses which.
 *
 *     comm.c -> nccl.c -> nccl_meet.c  (how ranks find each other)
 *                      -> nccl_calls.c (collectives)
 *                      -> nccl_memory.c (registered ranges and windows)
 *                      -> nccl_watch.c (a thread that watches the other ranks)
 *     all of these -> nccl_native.c (the communicator of NCCL: entered, polled, aborted)
 */
#ifndef COMM_NCCL_H
#define COMM_NCCL_H

#include "state.h"

/* Name of the driver whose devices NCCL works on. Tests put a library of their own in the place of NCCL, and the
 * simulator in the place of CUDA. */
extern const char *lochi_comm_nccl_driver;

/* Makes a communicator of NCCL. */
loch_status lochi_comm_nccl_create(loch_comm *comm, const loch_comm_options *options);

#endif
