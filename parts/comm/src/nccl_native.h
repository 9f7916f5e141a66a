/* SPDX-License-Identifier: MIT */
/* The communicator of NCCL (nccl_native.c), and the state that the files of this engine share.
 *
 * `lock` guards `native` and every call of NCCL on it. `native` is NULL before NCCL has made it and after it was given
 * up. The communicator is one that does not block: a call returns at once and goes on in a thread of NCCL, and
 * lochi_comm_native_finish waits for it, watching the time and the other ranks. */
#ifndef COMM_NCCL_NATIVE_H
#define COMM_NCCL_NATIVE_H

#include "nccl_library.h"
#include "state.h"
#include <loch/driver.h>

typedef struct comm_watch comm_watch;   /* nccl_watch.c */
typedef struct comm_memory comm_memory; /* nccl_memory.c */

typedef struct comm_nccl {
    const comm_nccl_api *api;
    pthread_mutex_t lock; /* recursive: an observer may run inside a call */
    void *native;
    atomic_bool is_aborted;             /* the work was given up */
    _Atomic uint64_t leave_deadline_ns; /* 0, or when the work is given up at destruction */
    loch_tensor *token;                 /* one number on the device, for barriers */
    comm_call *pending;                 /* calls of the present group */
    size_t pending_count, pending_capacity;
    comm_watch *watch;   /* NULL with one rank */
    comm_memory *memory; /* registered ranges and windows */
} comm_nccl;

/* What was current in a thread. */
typedef struct comm_frame {
    const loch_driver *driver;
    void *self, *before;
} comm_frame;

/* Makes the device of a communicator current. After a failure nothing has to be left. */
loch_status lochi_comm_frame_enter(const loch_comm *comm, comm_frame *frame);

/* Makes current what was current before. Keeps the error record. */
void lochi_comm_frame_leave(const comm_frame *frame);

/* Ends a call of NCCL that returned `result`: waits until it was carried out on the host. On failure the communicator
 * fails and its work is given up. The lock is held, and the device current. */
loch_status lochi_comm_native_finish(loch_comm *comm, int result, const char *call);

/* Ends a call of NCCL that may say success while its thread still works: those for windows. Otherwise as
 * lochi_comm_native_finish. */
loch_status lochi_comm_native_settle(loch_comm *comm, int result, const char *call);

/* Gives up all work and frees the communicator of NCCL. The lock is held. */
void lochi_comm_native_abort(loch_comm *comm);

#endif
