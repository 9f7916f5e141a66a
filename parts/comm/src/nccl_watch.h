/* SPDX-License-Identifier: MIT */
/* The watch over the other ranks (nccl_watch.c). */
#ifndef COMM_NCCL_WATCH_H
#define COMM_NCCL_WATCH_H

#include "nccl_native.h"

/* What a rank tells the others of itself. */
typedef struct comm_identity {
    char machine[40];    /* id of the running system */
    uint64_t namespace_; /* space of process numbers */
    int64_t process;
    char host[72]; /* name of the machine, for people */
} comm_identity;

/* Reads the identity of this process. */
void lochi_comm_identity_read(comm_identity *out);

/* Starts a thread that watches the processes on this machine and asks NCCL for errors. When a rank is lost, the
 * communicator fails, and its work is given up a moment later.
 * @param identities  one for each rank; copied */
loch_status lochi_comm_watch_create(loch_comm *comm, const comm_identity *identities);

/* Stops the thread. */
void lochi_comm_watch_destroy(loch_comm *comm);

/* Returns whether a process on this machine has ended, and if so writes the error record. */
bool lochi_comm_watch_find_lost(loch_comm *comm);

#endif
