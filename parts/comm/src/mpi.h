/* SPDX-License-Identifier: MIT */
/* The engine on MPI (mpi.c, mpi_calls.c, mpi_messages.c). */
#ifndef COMM_MPI_H
#define COMM_MPI_H

#include "mpi_library.h"
#include "state.h"

/* A message of a group, which begins when the group ends. */
typedef struct comm_mpi_message {
    comm_verb verb; /* COMM_SEND or COMM_RECEIVE */
    void *data;
    int peer;
    uint64_t own, other; /* bytes that this side and the other side name; MPI_AGREE_REFUSED: none */
} comm_mpi_message;

typedef struct comm_mpi {
    const comm_mpi_library *library;
    mpi_handle comm;      /* duplicate of MPI_COMM_WORLD; its own messages */
    bool is_begun;        /* counts as a user of MPI */
    bool has_comm;        /* `comm` is valid */
    bool is_broken;       /* a call of MPI failed: the job must not end as if all were well */
    bool is_checked;      /* calls are compared before data moves; the same on all ranks */
    uint64_t *words;      /* room for the words of all ranks' calls (mpi_agree.c) */
    mpi_handle *requests; /* under way: empty between calls */
    size_t requests_count, requests_capacity;
    comm_mpi_message *messages; /* of the present group */
    size_t messages_count, messages_capacity;
} comm_mpi;

/* The most elements or bytes of one call of MPI, which counts by int. Tests make it small. */
extern size_t lochi_comm_mpi_piece;

/* Makes a communicator of all processes of MPI. */
loch_status lochi_comm_mpi_create(loch_comm *comm);

/* Makes the id of rank 0 known to all processes of MPI, over a communicator of its own. */
loch_status lochi_comm_mpi_share_id(void *id, size_t bytes, int root, int *rank, int *ranks);

/* Makes a communicator fail after a call of MPI failed. Returns `status`. */
loch_status lochi_comm_mpi_break(loch_comm *comm, loch_status status);

/* Does a call (mpi_calls.c). */
loch_status lochi_comm_mpi_run(loch_comm *comm, const comm_call *call);

#define MPI_TAG_MESSAGE 1
#define MPI_TAG_ALL_TO_ALL 2

/* Waits for all requests and forgets them (mpi_messages.c). */
loch_status lochi_comm_mpi_wait(comm_mpi *mpi);

/* Starts messages of `bytes` bytes from or to a rank. Without the check, a receive waits until the message is there. */
loch_status lochi_comm_mpi_start(comm_mpi *mpi, comm_verb verb, void *data, size_t bytes, int peer, int tag);

/* Sends or receives a tensor, and waits. */
loch_status lochi_comm_mpi_send(const comm_mpi *mpi, const comm_call *call);
loch_status lochi_comm_mpi_receive(const comm_mpi *mpi, const comm_call *call);

/* Remembers a message of a group. With `is_run` false only its refusal is told to the other side. */
loch_status lochi_comm_mpi_add_message(comm_mpi *mpi, const comm_call *call, bool is_run);

/* Exchanges the messages of a group. With `is_run` false none moves data. E_INVALID: sizes differ. */
loch_status lochi_comm_mpi_run_messages(loch_comm *comm, bool is_run);

#endif
