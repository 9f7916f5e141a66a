/* SPDX-License-Identifier: MIT */
/* Compares the calls of all ranks before data moves (mpi_agree.c). */
#ifndef COMM_MPI_AGREE_H
#define COMM_MPI_AGREE_H

#include "mpi.h"

/* Decides whether calls are compared: by the option, else by LOCH_COMM_CHECK, else by the number of ranks. Every rank
 * calls this, and all get one answer: if one rank says no, none compares. */
loch_status lochi_comm_mpi_agree_begin(loch_comm *comm);

/* Compares a collective with the calls of all other ranks; a NULL call is a barrier. A rank that does not run its call,
 * because it has refused the arguments, calls this too. E_INVALID on every rank: the calls differ. */
loch_status lochi_comm_mpi_agree(loch_comm *comm, const comm_call *call, bool is_run);

/* Compares both sides of a message. Both learn that they differ: E_INVALID. */
loch_status lochi_comm_mpi_agree_message(loch_comm *comm, const comm_call *call, bool is_run);

/* What one side of a message tells the other: its bytes. */
#define MPI_AGREE_REFUSED UINT64_MAX /* it does not take part */
#define MPI_AGREE_TAG(verb) ((verb) == COMM_SEND ? 3 : 4)
#define MPI_AGREE_TAG_BACK(verb) ((verb) == COMM_SEND ? 4 : 3)

/* Compares what both sides of a message have told. E_INVALID: they differ. */
loch_status lochi_comm_mpi_agree_compare(const loch_comm *comm, comm_verb verb, int peer, uint64_t own, uint64_t other);

#endif
