/* SPDX-License-Identifier: MIT */
/* The engine on MPI (mpi.c, mpi_calls.c). */
#ifndef COMM_MPI_H
#define COMM_MPI_H

#include "mpi_library.h"
#include "state.h"

typedef struct comm_mpi {
    const comm_mpi_library *library;
    mpi_handle comm;      /* duplicate of MPI_COMM_WORLD; its own messages */
    bool is_begun;        /* counts as a user of MPI */
    bool has_comm;        /* `comm` is valid */
    bool is_broken;       /* a call of MPI failed: the job must not end as if all were well */
    mpi_handle *requests; /* of the present group, or of one call */
    size_t requests_count, requests_capacity;
} comm_mpi;

/* The most elements or bytes of one call of MPI, which counts by int. Tests make it small. */
extern size_t comm_mpi_piece;

/* Makes a communicator of all processes of MPI. */
loch_status comm_mpi_create(loch_comm *comm);

/* Makes the id of rank 0 known to all processes of MPI, over a communicator of its own. */
loch_status comm_mpi_share_id(void *id, size_t bytes, int root, int *rank, int *ranks);

/* Makes a communicator fail after a call of MPI failed. Returns `status`. */
loch_status comm_mpi_break(loch_comm *comm, loch_status status);

/* Does a call (mpi_calls.c). */
loch_status comm_mpi_run(loch_comm *comm, const comm_call *call);

/* Waits for all requests and forgets them. */
loch_status comm_mpi_wait(comm_mpi *mpi);

#endif
