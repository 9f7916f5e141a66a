/* SPDX-License-Identifier: MIT */
/* How the ranks of a communicator of NCCL find each other (nccl_meet.c). */
#ifndef COMM_NCCL_MEET_H
#define COMM_NCCL_MEET_H

#include "nccl_native.h"

/* Finds the id of the communicator, and rank and ranks if they are not known, and makes the communicator of NCCL. */
loch_status lochi_comm_meet(loch_comm *comm, const loch_comm_options *options);

#endif
