/* SPDX-License-Identifier: MIT */
/* The communicator of NCCL: entering its device, waiting for its calls, giving it up. */
#include "nccl_native.h"
#include "nccl_watch.h"
#include "kit/backoff.h"
#include "kit/fail.h"
#include "kit/now.h"

loch_status lochi_comm_frame_enter(const loch_comm *comm, comm_frame *frame)
{
    frame->driver = loch_device_get_driver(comm->device, &frame->self);
    if (!frame->driver) return LOCH_FAIL(FORKED, "the device of the communicator was opened before a fork");
    return frame->driver->enter(frame->self, &frame->before);
}

void lochi_comm_frame_leave(const comm_frame *frame)
{
    /* A failure means that the context that was current has been destroyed: then none is current. */
    (void)frame->driver->leave(frame->self, frame->before);
}

void lochi_comm_native_abort(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    if (!nccl->native) return;
    comm_frame frame;
    const loch_status entered = lochi_comm_frame_enter(comm, &frame);
    nccl->api->ncclCommAbort(nccl->native);
    if (entered == LOCH_OK) lochi_comm_frame_leave(&frame);
    nccl->native = NULL;
    atomic_store_explicit(&nccl->is_aborted, true, memory_order_release);
}

/* Makes the communicator fail by the present error record, and gives its work up. */
static loch_status native_give_up(loch_comm *comm, loch_status status)
{
    const loch_error error = *loch_error_get();
    lochi_comm_failure_set(comm, status);
    lochi_comm_native_abort(comm);
    return lochi_comm_error_restore(&error);
}

/* Waits until a call that is in progress has ended. Returns its result, or -1 if the communicator failed meanwhile or
 * the time is over. */
static int native_wait(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    const uint64_t deadline_ns = lochi_now_ns() + comm->timeout_ns;
    int result = COMM_NCCL_IN_PROGRESS;
    for (unsigned turn = 0; result == COMM_NCCL_IN_PROGRESS;) {
        if (atomic_load_explicit(&comm->is_failed, memory_order_acquire)) return -1;
        if (lochi_now_ns() > deadline_ns) return -1;
        lochi_backoff_eager(&turn);
        if (nccl->api->ncclCommGetAsyncError(nccl->native, &result) != COMM_NCCL_SUCCESS) return -1;
    }
    return result;
}

loch_status lochi_comm_native_finish(loch_comm *comm, int result, const char *call)
{
    comm_nccl *nccl = comm->below;
    if (result == COMM_NCCL_SUCCESS) return LOCH_OK;
    if (result == COMM_NCCL_IN_PROGRESS) result = native_wait(comm);
    if (result == COMM_NCCL_SUCCESS) return LOCH_OK;
    if (lochi_comm_failure_get(comm) != LOCH_OK) { /* the watch was first, and knows the rank */
        lochi_comm_native_abort(comm);
        return lochi_comm_failure_get(comm);
    }
    if (result < 0)
        return native_give_up(comm, loch_error_set(LOCH_E_BUSY, "nccl", 0,
                                                   "%s: not all of %d ranks came within %.3g s; this is rank %d", call,
                                                   comm->ranks, (double)comm->timeout_ns * 1e-9, comm->rank));
    if ((result == COMM_NCCL_REMOTE_ERROR || result == COMM_NCCL_SYSTEM_ERROR) && lochi_comm_watch_find_lost(comm))
        return native_give_up(comm, loch_error_get()->status);
    return native_give_up(comm, lochi_comm_nccl_fail(nccl->api, result, call));
}

loch_status lochi_comm_native_settle(loch_comm *comm, int result, const char *call)
{
    comm_nccl *nccl = comm->below;
    LOCH_RETURN(lochi_comm_native_finish(comm, result, call));
    if (nccl->api->ncclCommGetAsyncError(nccl->native, &result) != COMM_NCCL_SUCCESS)
        result = COMM_NCCL_INVALID_ARGUMENT;
    return lochi_comm_native_finish(comm, result, call);
}
