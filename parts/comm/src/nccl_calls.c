/* SPDX-License-Identifier: MIT */
/* Calls of NCCL. Movement counts bytes; reductions have types. The calls of a group are kept and queued together at its
 * end, so that no thread is inside a group of NCCL while the program does something else. */
#include "nccl_calls.h"
#include "nccl_memory.h"
#include "kit/fail.h"
#include <stdlib.h>

/* --- types --- */

#define NCCL_NO_TYPE (-1)
#define NCCL_VERSION_F8 22400

static int calls_type(loch_dtype dtype)
{
    switch (dtype) {
    case LOCH_F64: return COMM_NCCL_FLOAT64;
    case LOCH_F32: return COMM_NCCL_FLOAT32;
    case LOCH_F16: return COMM_NCCL_FLOAT16;
    case LOCH_BF16: return COMM_NCCL_BFLOAT16;
    case LOCH_F8E4M3: return COMM_NCCL_FLOAT8E4M3;
    case LOCH_F8E5M2: return COMM_NCCL_FLOAT8E5M2;
    case LOCH_I8: return COMM_NCCL_INT8;
    case LOCH_I32: return COMM_NCCL_INT32;
    case LOCH_I64: return COMM_NCCL_INT64;
    case LOCH_U8:
    case LOCH_BOOL: return COMM_NCCL_UINT8;
    case LOCH_U32: return COMM_NCCL_UINT32;
    case LOCH_U64: return COMM_NCCL_UINT64;
    default: return NCCL_NO_TYPE;
    }
}

static const int calls_ops[] = {[LOCH_COMM_SUM] = COMM_NCCL_SUM,
                                [LOCH_COMM_PRODUCT] = COMM_NCCL_PROD,
                                [LOCH_COMM_MIN] = COMM_NCCL_MIN,
                                [LOCH_COMM_MAX] = COMM_NCCL_MAX,
                                [LOCH_COMM_AVERAGE] = COMM_NCCL_AVG};

loch_status lochi_comm_nccl_can_reduce(const loch_comm *comm, loch_dtype dtype, loch_comm_op op)
{
    (void)op;
    const comm_nccl *nccl = comm->below;
    const bool is_f8 = dtype == LOCH_F8E4M3 || dtype == LOCH_F8E5M2;
    if (calls_type(dtype) == NCCL_NO_TYPE)
        return LOCH_FAIL(UNSUPPORTED, "NCCL does not reduce %s: convert it to i32 first", loch_dtype_name(dtype));
    if (is_f8 && nccl->api->version < NCCL_VERSION_F8)
        return LOCH_FAIL(UNSUPPORTED, "NCCL %s does not reduce %s: 2.24 does", comm->version, loch_dtype_name(dtype));
    return LOCH_OK;
}

/* --- one call --- */

/* Queues the messages of an all-to-all, inside a group of NCCL. Returns the first result that is not a success. */
static int calls_exchange(const loch_comm *comm, const comm_call *call, void *queue)
{
    const comm_nccl *nccl = comm->below;
    int first = COMM_NCCL_SUCCESS;
    for (int rank = 0; rank < comm->ranks; rank++) {
        const bool is_v = call->verb == COMM_ALL_TO_ALL_V;
        const size_t even = (size_t)rank * call->count * call->bytes;
        const size_t to_offset = is_v ? call->to_offsets[rank] * call->bytes : even;
        const size_t to_bytes = (is_v ? call->to_counts[rank] : call->count) * call->bytes;
        const size_t from_offset = is_v ? call->from_offsets[rank] * call->bytes : even;
        const size_t from_bytes = (is_v ? call->from_counts[rank] : call->count) * call->bytes;
        int result = COMM_NCCL_SUCCESS;
        if (from_bytes)
            result = nccl->api->ncclSend((const char *)call->from + from_offset, from_bytes, COMM_NCCL_INT8, rank,
                                         nccl->native, queue);
        if (first == COMM_NCCL_SUCCESS) first = result;
        if (to_bytes)
            result =
                nccl->api->ncclRecv((char *)call->to + to_offset, to_bytes, COMM_NCCL_INT8, rank, nccl->native, queue);
        if (first == COMM_NCCL_SUCCESS) first = result;
    }
    return first;
}

/* With one rank an all-to-all is a copy, which NCCL makes of an all-gather. */
static int calls_all_to_all(const loch_comm *comm, const comm_call *call, void *queue)
{
    const comm_nccl *nccl = comm->below;
    if (comm->ranks > 1) {
        nccl->api->ncclGroupStart();
        const int result = calls_exchange(comm, call, queue);
        const int ended = nccl->api->ncclGroupEnd();
        return result == COMM_NCCL_SUCCESS ? ended : result;
    }
    const bool is_v = call->verb == COMM_ALL_TO_ALL_V;
    const size_t bytes = (is_v ? call->from_counts[0] : call->count) * call->bytes;
    const size_t from_offset = is_v ? call->from_offsets[0] * call->bytes : 0;
    const size_t to_offset = is_v ? call->to_offsets[0] * call->bytes : 0;
    if (!bytes) return COMM_NCCL_SUCCESS;
    return nccl->api->ncclAllGather((const char *)call->from + from_offset, (char *)call->to + to_offset, bytes,
                                    COMM_NCCL_INT8, nccl->native, queue);
}

/* Hands a call to NCCL. The lock is held, and the device current. */
static int calls_issue(const loch_comm *comm, const comm_call *call)
{
    const comm_nccl *nccl = comm->below;
    const comm_nccl_api *api = nccl->api;
    void *queue = loch_stream_get_native(call->stream);
    const size_t bytes = call->count * call->bytes;
    switch (call->verb) {
    case COMM_ALL_REDUCE:
        return api->ncclAllReduce(call->from, call->to, call->count, calls_type(call->dtype), calls_ops[call->op],
                                  nccl->native, queue);
    case COMM_ALL_GATHER: return api->ncclAllGather(call->from, call->to, bytes, COMM_NCCL_INT8, nccl->native, queue);
    case COMM_REDUCE_SCATTER:
        return api->ncclReduceScatter(call->from, call->to, call->count, calls_type(call->dtype), calls_ops[call->op],
                                      nccl->native, queue);
    case COMM_BROADCAST:
        return api->ncclBroadcast(call->from, call->to, bytes, COMM_NCCL_INT8, call->peer, nccl->native, queue);
    case COMM_REDUCE: /* other ranks have no target, and NCCL looks at none */
        return api->ncclReduce(call->from, call->to, call->count, calls_type(call->dtype), calls_ops[call->op],
                               call->peer, nccl->native, queue);
    case COMM_SEND: return api->ncclSend(call->from, bytes, COMM_NCCL_INT8, call->peer, nccl->native, queue);
    case COMM_RECEIVE: return api->ncclRecv(call->to, bytes, COMM_NCCL_INT8, call->peer, nccl->native, queue);
    case COMM_ALL_TO_ALL:
    case COMM_ALL_TO_ALL_V: return calls_all_to_all(comm, call, queue);
    }
    return COMM_NCCL_INVALID_ARGUMENT;
}

static const char *const calls_names[] = {
    [COMM_ALL_REDUCE] = "ncclAllReduce",
    [COMM_ALL_GATHER] = "ncclAllGather",
    [COMM_REDUCE_SCATTER] = "ncclReduceScatter",
    [COMM_BROADCAST] = "ncclBroadcast",
    [COMM_REDUCE] = "ncclReduce",
    [COMM_ALL_TO_ALL] = "all-to-all by ncclSend and ncclRecv",
    [COMM_SEND] = "ncclSend",
    [COMM_ALL_TO_ALL_V] = "all-to-all by ncclSend and ncclRecv",
    [COMM_RECEIVE] = "ncclRecv",
};

/* --- groups --- */

static loch_status calls_keep(comm_nccl *nccl, const comm_call *call)
{
    if (nccl->pending_count == nccl->pending_capacity) {
        const size_t capacity = nccl->pending_capacity ? 2 * nccl->pending_capacity : 8;
        comm_call *pending = realloc(nccl->pending, capacity * sizeof *pending);
        if (!pending) return LOCH_FAIL(HOST_MEMORY, "no host memory for a group of %zu calls", capacity);
        nccl->pending = pending;
        nccl->pending_capacity = capacity;
    }
    nccl->pending[nccl->pending_count++] = *call;
    return LOCH_OK;
}

/* Keeps the messages of an all-to-all with counts of its own: the arrays are the caller's. */
static loch_status calls_keep_parts(const loch_comm *comm, comm_nccl *nccl, const comm_call *call)
{
    for (int rank = 0; rank < comm->ranks; rank++) {
        comm_call part = {.dtype = call->dtype, .bytes = call->bytes, .peer = rank, .stream = call->stream};
        part.verb = COMM_SEND;
        part.count = call->from_counts[rank];
        part.from = (const char *)call->from + call->from_offsets[rank] * call->bytes;
        if (part.count) LOCH_RETURN(calls_keep(nccl, &part));
        part.verb = COMM_RECEIVE;
        part.count = call->to_counts[rank];
        part.to = (char *)call->to + call->to_offsets[rank] * call->bytes;
        if (part.count) LOCH_RETURN(calls_keep(nccl, &part));
    }
    return LOCH_OK;
}

/* Queues all calls of a group. The lock is held, and the device current. */
static int calls_issue_group(const loch_comm *comm)
{
    const comm_nccl *nccl = comm->below;
    int first = nccl->api->ncclGroupStart();
    if (first != COMM_NCCL_SUCCESS) return first;
    for (size_t i = 0; i < nccl->pending_count && first == COMM_NCCL_SUCCESS; i++)
        first = calls_issue(comm, &nccl->pending[i]);
    const int ended = nccl->api->ncclGroupEnd();
    return first == COMM_NCCL_SUCCESS ? ended : first;
}

/* --- the door --- */

/* Queues one call, or the present group if `call` is NULL. */
static loch_status calls_queue(loch_comm *comm, const comm_call *call)
{
    comm_nccl *nccl = comm->below;
    comm_frame frame;
    LOCH_RETURN(lochi_comm_frame_enter(comm, &frame));
    pthread_mutex_lock(&nccl->lock);
    loch_status status = lochi_comm_failure_get(comm); /* it may have failed since the call began */
    if (status == LOCH_OK)
        status = call ? lochi_comm_native_finish(comm, calls_issue(comm, call), calls_names[call->verb])
                      : lochi_comm_native_finish(comm, calls_issue_group(comm), "ncclGroupEnd");
    pthread_mutex_unlock(&nccl->lock);
    lochi_comm_frame_leave(&frame);
    return status;
}

loch_status lochi_comm_nccl_run(loch_comm *comm, const comm_call *call)
{
    comm_nccl *nccl = comm->below;
    lochi_comm_memory_need(comm, comm->uses + call->first_use, comm->uses_count - call->first_use);
    if (!comm->is_grouped) return calls_queue(comm, call);
    return call->verb == COMM_ALL_TO_ALL_V ? calls_keep_parts(comm, nccl, call) : calls_keep(nccl, call);
}

loch_status lochi_comm_nccl_end_group(loch_comm *comm, loch_status status)
{
    comm_nccl *nccl = comm->below;
    if (status == LOCH_OK && nccl->pending_count) status = calls_queue(comm, NULL);
    nccl->pending_count = 0;
    return status;
}
