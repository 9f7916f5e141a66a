/* SPDX-License-Identifier: MIT */
/* The engine on NCCL: creation, waiting and destruction. */
#include "nccl.h"
#include "nccl_calls.h"
#include "nccl_meet.h"
#include "nccl_memory.h"
#include "nccl_watch.h"
#include "kit/backoff.h"
#include "kit/fail.h"
#include "kit/now.h"
#include <stdio.h>
#include <stdlib.h>

/* --- slots --- */

static loch_status nccl_accept(loch_comm *comm, const loch_tensor *tensor, const char *what)
{
    const loch_device *device = loch_tensor_get_device(tensor);
    if (device == comm->device) return LOCH_OK;
    return LOCH_FAIL(INVALID, "the tensor '%s' of a collective is on %.80s, and the communicator on %.80s", what,
                     device ? loch_device_get_name(device) : "the host", loch_device_get_name(comm->device));
}

static loch_status nccl_prepare(loch_comm *comm, loch_stream *stream)
{
    if (loch_stream_get_device(stream) == comm->device) return LOCH_OK;
    return LOCH_FAIL(INVALID, "the stream of a collective is on %.80s, and the communicator on %.80s",
                     loch_device_get_name(loch_stream_get_device(stream)), loch_device_get_name(comm->device));
}

static loch_status nccl_begin_group(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    nccl->pending_count = 0;
    return LOCH_OK;
}

/* The work on a stream did not end in time: gives it up. */
static loch_status nccl_give_up(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    const loch_status status = loch_error_set(LOCH_E_BUSY, "nccl", 0,
                                              "the work on a stream has not ended within %.3g s: a rank has not made "
                                              "its call, or is slow; this is rank %d of %d",
                                              (double)comm->timeout_ns * 1e-9, comm->rank, comm->ranks);
    lochi_comm_failure_set(comm, status);
    pthread_mutex_lock(&nccl->lock);
    lochi_comm_native_abort(comm);
    pthread_mutex_unlock(&nccl->lock);
    return lochi_comm_failure_get(comm);
}

/* A rank that ended in order may be seen to be lost while this rank's last work is still under way: that work counts if
 * it ends before it is given up. */
static loch_status nccl_sync(loch_comm *comm, loch_stream *stream)
{
    const comm_nccl *nccl = comm->below;
    if (comm->ranks == 1) return loch_stream_sync(stream);
    const uint64_t deadline_ns = lochi_now_ns() + comm->timeout_ns;
    for (unsigned turn = 0;;) {
        const loch_status status = loch_stream_query(stream);
        if (atomic_load_explicit(&nccl->is_aborted, memory_order_acquire)) return lochi_comm_failure_get(comm);
        if (status != LOCH_E_BUSY) return status;
        if (lochi_now_ns() > deadline_ns) return nccl_give_up(comm);
        lochi_backoff_eager(&turn);
    }
}

static loch_status nccl_barrier(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    return loch_comm_all_reduce(comm, nccl->token, nccl->token, LOCH_COMM_MAX, NULL);
}

/* --- destruction --- */

/* Ends the communicator of NCCL in order, or gives it up. */
static void nccl_end(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    comm_frame frame;
    pthread_mutex_lock(&nccl->lock);
    if (nccl->native && !atomic_load_explicit(&comm->is_failed, memory_order_acquire) &&
        lochi_comm_frame_enter(comm, &frame) == LOCH_OK) {
        /* After a failure the communicator of NCCL was given up, and there is none. */
        if (lochi_comm_native_finish(comm, nccl->api->ncclCommFinalize(nccl->native), "ncclCommFinalize") == LOCH_OK) {
            nccl->api->ncclCommDestroy(nccl->native);
            nccl->native = NULL;
        }
        lochi_comm_frame_leave(&frame);
    }
    lochi_comm_native_abort(comm);
    pthread_mutex_unlock(&nccl->lock);
}

/* Waits for the work of the device. The watch gives it up when the time is over or a rank is lost. */
static void nccl_drain(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    pthread_mutex_lock(&nccl->lock);
    const bool is_there = nccl->native;
    pthread_mutex_unlock(&nccl->lock);
    if (!is_there || atomic_load_explicit(&comm->is_failed, memory_order_acquire)) return;
    atomic_store_explicit(&nccl->leave_deadline_ns, lochi_now_ns() + comm->timeout_ns, memory_order_release);
    const loch_status waited = loch_device_sync(comm->device);
    (void)waited; /* a device that is lost has no work in progress */
}

static void nccl_destroy(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    if (!nccl) return;
    nccl_drain(comm);
    lochi_comm_watch_destroy(comm);
    lochi_comm_memory_destroy(comm);
    nccl_end(comm);
    loch_tensor_release(nccl->token);
    pthread_mutex_destroy(&nccl->lock);
    free(nccl->pending);
    free(nccl);
    comm->below = NULL;
}

static const comm_engine nccl_engine = {.accept = nccl_accept,
                                        .can_reduce = lochi_comm_nccl_can_reduce,
                                        .prepare = nccl_prepare,
                                        .agree = lochi_comm_agree_always,
                                        .run = lochi_comm_nccl_run,
                                        .begin_group = nccl_begin_group,
                                        .end_group = lochi_comm_nccl_end_group,
                                        .barrier = nccl_barrier,
                                        .sync = nccl_sync,
                                        .add_window = lochi_comm_memory_add_window,
                                        .remove_window = lochi_comm_memory_remove_window,
                                        .describe = lochi_comm_memory_describe,
                                        .destroy = nccl_destroy};

/* --- creation --- */

/* Tells this rank's identity to all ranks, by NCCL itself, and starts the watch. */
static loch_status nccl_introduce(loch_comm *comm, loch_tensor *all, loch_tensor *own, comm_identity *identities)
{
    const size_t bytes = (size_t)comm->ranks * sizeof *identities;
    lochi_comm_identity_read(&identities[comm->rank]);
    LOCH_RETURN(loch_tensor_write(own, &identities[comm->rank], sizeof *identities, NULL));
    LOCH_RETURN(loch_comm_all_gather(comm, all, own, NULL));
    LOCH_RETURN(loch_tensor_read(all, identities, bytes, NULL));
    comm->local_rank = comm->local_ranks = 0;
    for (int rank = 0; rank < comm->ranks; rank++) {
        identities[rank].machine[sizeof identities[rank].machine - 1] = '\0';
        identities[rank].host[sizeof identities[rank].host - 1] = '\0';
        if (strcmp(identities[rank].machine, identities[comm->rank].machine) != 0) continue;
        comm->local_ranks++;
        comm->local_rank += rank < comm->rank;
    }
    return comm->ranks > 1 ? lochi_comm_watch_create(comm, identities) : LOCH_OK;
}

static loch_status nccl_meet_all(loch_comm *comm)
{
    const loch_tensor_options options = {.size = sizeof options, .device = comm->device};
    loch_tensor *all = NULL, *own = NULL;
    comm_identity *identities = calloc((size_t)comm->ranks, sizeof *identities);
    if (!identities) return LOCH_FAIL(HOST_MEMORY, "no host memory for %d ranks", comm->ranks);
    const int64_t bytes = (int64_t)sizeof *identities;
    loch_status status = loch_tensor_create(LOCH_U8, LOCH_SHAPE(comm->ranks * bytes), &options, &all);
    if (status == LOCH_OK) status = loch_tensor_create(LOCH_U8, LOCH_SHAPE(bytes), &options, &own);
    if (status == LOCH_OK) status = nccl_introduce(comm, all, own, identities);
    const loch_error error = *loch_error_get();
    loch_tensor_release(all);
    loch_tensor_release(own);
    free(identities);
    return status == LOCH_OK ? LOCH_OK : lochi_comm_error_restore(&error);
}

static loch_status nccl_make_token(loch_comm *comm)
{
    comm_nccl *nccl = comm->below;
    const loch_tensor_options options = {
        .size = sizeof options, .device = comm->device, .flags = LOCH_ALLOC_ZEROED, .name = "barrier"};
    return loch_tensor_create(LOCH_I32, LOCH_SCALAR, &options, &nccl->token);
}

loch_status lochi_comm_nccl_create(loch_comm *comm, const loch_comm_options *options)
{
    comm_nccl *nccl = calloc(1, sizeof *nccl);
    if (!nccl) return LOCH_FAIL(HOST_MEMORY, "no host memory for a communicator");
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&nccl->lock, &attributes);
    pthread_mutexattr_destroy(&attributes);
    comm->below = nccl;
    comm->engine = &nccl_engine;
    comm->name = "NCCL";
    LOCH_RETURN(lochi_comm_nccl_load(&nccl->api));
    const int version = nccl->api->version;
    snprintf(comm->version, sizeof comm->version, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
    LOCH_RETURN(lochi_comm_memory_create(comm));
    LOCH_RETURN(nccl_make_token(comm));
    LOCH_RETURN(lochi_comm_meet(comm, options));
    return nccl_meet_all(comm);
}
