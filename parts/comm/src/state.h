/* SPDX-License-Identifier: MIT */
/* A communicator, and what an engine below it supplies.
 *
 * The front (calls.c) checks arguments, pins tensors and keeps groups. An engine gets calls that are complete and
 * correct: addresses, counts in elements, and a stream that is never NULL. Its state hangs on `below`. */
#ifndef COMM_STATE_H
#define COMM_STATE_H

#include "common.h"
#include <stdatomic.h>

/* What a call does. */
typedef enum comm_verb {
    COMM_ALL_REDUCE,
    COMM_ALL_GATHER,
    COMM_REDUCE_SCATTER,
    COMM_BROADCAST,
    COMM_REDUCE,
    COMM_ALL_TO_ALL,
    COMM_ALL_TO_ALL_V,
    COMM_SEND,
    COMM_RECEIVE
} comm_verb;

/* A call whose arguments are checked. */
typedef struct comm_call {
    comm_verb verb;
    void *to;            /* NULL where there is none: a send, a reduce on other ranks, and tensors without elements */
    const void *from;    /* NULL where there is none */
    size_t count;        /* elements: of one rank's part where a tensor has parts, otherwise of the tensor */
    size_t bytes;        /* bytes of one element */
    loch_dtype dtype;    /* type of the elements */
    loch_comm_op op;     /* reductions only */
    int peer;            /* root, or the other side */
    loch_stream *stream; /* never NULL */
    size_t first_use;    /* where its tensors begin among the uses of the communicator */
    const size_t *to_counts, *to_offsets, *from_counts, *from_offsets; /* COMM_ALL_TO_ALL_V only: in elements */
} comm_call;

/* A tensor that a call uses: retained and pinned. */
typedef struct comm_use {
    loch_tensor *tensor;
    loch_access access; /* LOCH_READ_WRITE: the call writes it */
} comm_use;

/* What an engine does. Every slot is filled. Calls come with cancellation disabled. */
typedef struct comm_engine {
    /* Tells whether a tensor is where the engine can use it. */
    loch_status (*accept)(loch_comm *comm, const loch_tensor *tensor, const char *what);
    /* Tells whether numbers of this type can be reduced. */
    loch_status (*can_reduce)(const loch_comm *comm, loch_dtype dtype, loch_comm_op op);
    /* Called before a call and before its tensors' addresses are used: waits for the stream, where the engine works on
     * the host, and refuses a stream that it cannot use. */
    loch_status (*prepare)(loch_comm *comm, loch_stream *stream);
    /* Compares a call with those of the other ranks, where the engine does. Called before `run`, for calls without
     * elements too, and with `is_run` false for a call that is refused or dropped here, which others may wait in. */
    loch_status (*agree)(loch_comm *comm, const comm_call *call, bool is_run);
    /* Queues or does a call. Inside a group, tensors stay pinned until the group has ended. */
    loch_status (*run)(loch_comm *comm, const comm_call *call);
    loch_status (*begin_group)(loch_comm *comm);
    /* Ends a group, also one with a failed call: `status` is the first failure of a call. */
    loch_status (*end_group)(loch_comm *comm, loch_status status);
    loch_status (*barrier)(loch_comm *comm);
    /* Waits until the work on a stream has ended, or fails. */
    loch_status (*sync)(loch_comm *comm, loch_stream *stream);
    loch_status (*add_window)(loch_comm *comm, loch_buffer *buffer);
    loch_status (*remove_window)(loch_comm *comm, loch_buffer *buffer);
    /* Fills in what it knows of itself. */
    void (*describe)(const loch_comm *comm, loch_comm_info *out);
    /* Takes a half-built state too. */
    void (*destroy)(loch_comm *comm);
} comm_engine;

#define COMM_USES_FIRST 4

struct loch_comm {
    const comm_engine *engine; /* NULL until it is chosen */
    void *below;               /* the engine's own state */
    loch_comm_kind kind;
    const char *name; /* of the engine, for people */
    char version[32];
    loch_device *device; /* retained */
    int rank, ranks, local_rank, local_ranks;
    int process_rank; /* rank among processes; differs from `rank` with several seats */
    unsigned seats;
    uint64_t timeout_ns;
    loch_comm_registration registration;
    loch_comm_check check; /* as asked for; the engine of MPI writes what it does */
    unsigned epoch;        /* lochi_comm_fork_epoch when it was created: a child tells what it inherited */

    atomic_bool is_failed;        /* set with release after `failure` is complete */
    pthread_mutex_t failure_lock; /* guards the writing of `failure` */
    loch_error failure;           /* constant once `is_failed` is set */

    /* A group: one thread uses these. */
    bool is_grouped;
    loch_stream *group_stream; /* of its first call; NULL before that */
    bool group_waits;          /* its calls gave no stream */
    loch_error group_error;    /* first failure of a call in it */

    comm_use *uses; /* tensors of the present call, or of the present group */
    size_t uses_count, uses_capacity;

    _Atomic uint64_t calls;
};

/* The slot `agree` of engines that compare nothing. */
loch_status lochi_comm_agree_always(loch_comm *comm, const comm_call *call, bool is_run);

/* Remembers the first failure of a communicator: later calls return it. Returns `status`. The sentence is that of the
 * calling thread's error record. */
loch_status lochi_comm_failure_set(loch_comm *comm, loch_status status);

/* Number of forks between the first process that created a communicator and this one. Changes in the child of a fork
 * only, before it has a second thread. */
extern unsigned lochi_comm_fork_epoch;

/* Counts forks from now on. */
void lochi_comm_fork_watch(void);

/* Returns the failure of a communicator with its sentence, or LOCH_OK. In the child of a fork: E_FORKED. */
loch_status lochi_comm_failure_get(loch_comm *comm);

/* Restores an error record that was saved before calls that may fail too. Returns its status. */
loch_status lochi_comm_error_restore(const loch_error *error);

#endif
