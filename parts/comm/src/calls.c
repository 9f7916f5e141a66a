/* SPDX-License-Identifier: MIT */
/* The public calls. Each checks its arguments, fills in a comm_call and hands it to the engine: by itself, or as a part
 * of a group. In a group the tensors stay pinned until its end, when the engine queues the work. */
#include "state.h"
#include "uses.h"
#include "kit/fail.h"

/* --- around a call --- */

/* Whether a call moves nothing on any rank when this rank has no elements. In an all-to-all with counts of its own,
 * other ranks may have some. */
static bool call_is_empty(const comm_call *call)
{
    return call->count == 0 && call->verb != COMM_ALL_TO_ALL_V;
}

/* A closed stream has no handle, as the default stream has none: a query tells them apart. */
static loch_status call_check_stream(loch_stream *stream)
{
    if (loch_stream_get_native(stream) || stream == loch_stream_get_default(loch_stream_get_device(stream)))
        return LOCH_OK;
    const loch_status status = loch_stream_query(stream);
    return status == LOCH_E_BUSY ? LOCH_OK : status;
}

/* Begins a call: finds its stream. The first call of a group decides for the group. */
static loch_status call_begin(loch_comm *comm, loch_stream *stream, comm_call *call)
{
    if (!comm) return LOCH_FAIL(INVALID, "the communicator is NULL");
    LOCH_RETURN(lochi_comm_failure_get(comm));
    call->stream = stream ? stream : loch_stream_get_default(comm->device);
    call->first_use = comm->uses_count;
    LOCH_RETURN(call_check_stream(call->stream));
    LOCH_RETURN(comm->engine->prepare(comm, call->stream));
    if (!comm->is_grouped) return LOCH_OK;
    if (comm->group_stream && (comm->group_stream != call->stream || comm->group_waits != !stream))
        return LOCH_FAIL(INVALID, "calls of a group name several streams, and all must name one");
    if (!comm->group_stream) comm->group_stream = loch_stream_retain(call->stream);
    comm->group_waits = !stream;
    return LOCH_OK;
}

/* Remembers the first failure of a group. */
static loch_status call_note(loch_comm *comm, loch_status status)
{
    if (status != LOCH_OK && comm && comm->is_grouped && comm->group_error.status == LOCH_OK)
        comm->group_error = *loch_error_get();
    return status;
}

loch_status lochi_comm_agree_always(loch_comm *comm, const comm_call *call, bool is_run)
{
    (void)comm, (void)call, (void)is_run;
    return LOCH_OK;
}

/* Compares a call with those of other ranks, and hands it to the engine. A call that has failed here, or that a failed
 * group drops, is compared too: `status` stays. */
static loch_status call_run(loch_comm *comm, const comm_call *call, loch_status status)
{
    const bool is_run = status == LOCH_OK && !(comm->is_grouped && comm->group_error.status != LOCH_OK);
    const loch_error error = *loch_error_get();
    if (is_run) atomic_fetch_add_explicit(&comm->calls, 1, memory_order_relaxed);
    if (atomic_load_explicit(&comm->is_failed, memory_order_acquire)) return status;
    const loch_status agreed = comm->engine->agree(comm, call, is_run);
    if (!is_run) return status == LOCH_OK ? LOCH_OK : lochi_comm_error_restore(&error);
    if (agreed != LOCH_OK || call_is_empty(call)) return agreed;
    return comm->engine->run(comm, call);
}

/* Ends a call: hands it to the engine if its arguments are right. */
static loch_status call_end(loch_comm *comm, const comm_call *call, loch_stream *stream, loch_status status)
{
    LOCHI_NOT_CANCELLED;
    if (!comm || comm->epoch != lochi_comm_fork_epoch) return status;
    status = call_run(comm, call, status);
    if (comm->is_grouped) return call_note(comm, status);
    status = lochi_comm_uses_end(comm, call->stream, status);
    return status == LOCH_OK && !stream ? comm->engine->sync(comm, call->stream) : status;
}

/* --- checks --- */

static loch_status check_rank(const loch_comm *comm, int rank, const char *what)
{
    if (rank >= 0 && rank < comm->ranks) return LOCH_OK;
    return LOCH_FAIL(INVALID, "the %s is rank %d, and the ranks are 0 to %d", what, rank, comm->ranks - 1);
}

static loch_status check_op(const loch_comm *comm, loch_dtype dtype, loch_comm_op op)
{
    if ((unsigned)op > LOCH_COMM_AVERAGE) return LOCH_FAIL(INVALID, "there is no reduction %d", (int)op);
    if (dtype == LOCH_BOOL && op != LOCH_COMM_MIN && op != LOCH_COMM_MAX)
        return LOCH_FAIL(UNSUPPORTED, "bools are reduced by LOCH_COMM_MIN (all) and LOCH_COMM_MAX (any) only");
    return comm->engine->can_reduce(comm, dtype, op);
}

/* Fills in the type and the number of elements of one part, and checks that the larger tensor has `parts` of the
 * smaller. */
static loch_status check_pair(const loch_tensor *whole, const loch_tensor *part, int parts, comm_call *call)
{
    if (!whole || !part) return LOCH_OK; /* lochi_comm_uses_add tells */
    const size_t elements = loch_tensor_get_elements(part);
    call->dtype = loch_tensor_get_dtype(part);
    call->bytes = loch_dtype_bytes(call->dtype);
    call->count = elements;
    if (loch_tensor_get_dtype(whole) != call->dtype)
        return LOCH_FAIL(INVALID, "the tensors of a collective have two types, %s and %s",
                         loch_dtype_name(loch_tensor_get_dtype(whole)), loch_dtype_name(call->dtype));
    const size_t all = loch_tensor_get_elements(whole);
    if (all / (size_t)parts == elements && all % (size_t)parts == 0) return LOCH_OK;
    if (parts == 1) return LOCH_FAIL(INVALID, "the tensors of a collective have %zu and %zu elements", all, elements);
    return LOCH_FAIL(INVALID, "a tensor of %zu elements does not hold %d parts of %zu elements, one for each rank", all,
                     parts, elements);
}

/* Checks that two ranges are apart, or that `inner`, which is given as an address, begins at `allowed`. */
static loch_status check_overlap(const void *to, size_t to_bytes, const void *from, size_t from_bytes, bool is_in_place)
{
    if (is_in_place || !to_bytes || !from_bytes) return LOCH_OK;
    const uintptr_t a = (uintptr_t)to, b = (uintptr_t)from;
    if (a + to_bytes <= b || b + from_bytes <= a) return LOCH_OK;
    return LOCH_FAIL(INVALID, "the tensors of a collective overlap, and not as in place");
}

/* Takes both tensors of a call into use. */
static loch_status call_take(loch_comm *comm, loch_tensor *to, loch_tensor *from, comm_call *call)
{
    void *address;
    LOCH_RETURN(lochi_comm_uses_add(comm, to, LOCH_READ_WRITE, "to", call->stream, &call->to));
    LOCH_RETURN(lochi_comm_uses_add(comm, from, LOCH_READ_ONLY, "from", call->stream, &address));
    call->from = address;
    return LOCH_OK;
}

/* --- collectives --- */

static loch_status all_reduce_check(loch_comm *comm, loch_tensor *to, loch_tensor *from, comm_call *call)
{
    LOCH_RETURN(check_pair(to, from, 1, call));
    LOCH_RETURN(call_take(comm, to, from, call));
    LOCH_RETURN(check_op(comm, call->dtype, call->op));
    const size_t bytes = call->count * call->bytes;
    return check_overlap(call->to, bytes, call->from, bytes, call->to == call->from);
}

loch_status loch_comm_all_reduce(loch_comm *comm, loch_tensor *to, loch_tensor *from, loch_comm_op op,
                                 loch_stream *stream)
{
    comm_call call = {.verb = COMM_ALL_REDUCE, .op = op};
    loch_status status = call_begin(comm, stream, &call);
    if (status == LOCH_OK) status = all_reduce_check(comm, to, from, &call);
    return call_end(comm, &call, stream, status);
}

static loch_status all_gather_check(loch_comm *comm, loch_tensor *to, loch_tensor *from, comm_call *call)
{
    LOCH_RETURN(check_pair(to, from, comm->ranks, call));
    LOCH_RETURN(call_take(comm, to, from, call));
    const size_t bytes = call->count * call->bytes;
    const bool is_in_place = bytes && (const char *)call->to + bytes * (size_t)comm->rank == call->from;
    return check_overlap(call->to, bytes * (size_t)comm->ranks, call->from, bytes, is_in_place);
}

loch_status loch_comm_all_gather(loch_comm *comm, loch_tensor *to, loch_tensor *from, loch_stream *stream)
{
    comm_call call = {.verb = COMM_ALL_GATHER};
    loch_status status = call_begin(comm, stream, &call);
    if (status == LOCH_OK) status = all_gather_check(comm, to, from, &call);
    return call_end(comm, &call, stream, status);
}

static loch_status reduce_scatter_check(loch_comm *comm, loch_tensor *to, loch_tensor *from, comm_call *call)
{
    LOCH_RETURN(check_pair(from, to, comm->ranks, call));
    LOCH_RETURN(call_take(comm, to, from, call));
    LOCH_RETURN(check_op(comm, call->dtype, call->op));
    const size_t bytes = call->count * call->bytes;
    const bool is_in_place = bytes && (const char *)call->from + bytes * (size_t)comm->rank == call->to;
    return check_overlap(call->to, bytes, call->from, bytes * (size_t)comm->ranks, is_in_place);
}

loch_status loch_comm_reduce_scatter(loch_comm *comm, loch_tensor *to, loch_tensor *from, loch_comm_op op,
                                     loch_stream *stream)
{
    comm_call call = {.verb = COMM_REDUCE_SCATTER, .op = op};
    loch_status status = call_begin(comm, stream, &call);
    if (status == LOCH_OK) status = reduce_scatter_check(comm, to, from, &call);
    return call_end(comm, &call, stream, status);
}

static loch_status broadcast_check(loch_comm *comm, loch_tensor *tensor, comm_call *call)
{
    LOCH_RETURN(check_rank(comm, call->peer, "root of a broadcast"));
    LOCH_RETURN(check_pair(tensor, tensor, 1, call));
    void *address;
    const loch_access access = call->peer == comm->rank ? LOCH_READ_ONLY : LOCH_READ_WRITE;
    LOCH_RETURN(lochi_comm_uses_add(comm, tensor, access, "tensor", call->stream, &address));
    call->to = address;
    call->from = address;
    return LOCH_OK;
}

loch_status loch_comm_broadcast(loch_comm *comm, loch_tensor *tensor, int root, loch_stream *stream)
{
    comm_call call = {.verb = COMM_BROADCAST, .peer = root};
    loch_status status = call_begin(comm, stream, &call);
    if (status == LOCH_OK) status = broadcast_check(comm, tensor, &call);
    return call_end(comm, &call, stream, status);
}

static loch_status reduce_check(loch_comm *comm, loch_tensor *to, loch_tensor *from, comm_call *call)
{
    LOCH_RETURN(check_rank(comm, call->peer, "root of a reduction"));
    if (call->peer == comm->rank) return all_reduce_check(comm, to, from, call);
    void *address;
    LOCH_RETURN(check_pair(from, from, 1, call));
    LOCH_RETURN(lochi_comm_uses_add(comm, from, LOCH_READ_ONLY, "from", call->stream, &address));
    call->from = address;
    return check_op(comm, call->dtype, call->op);
}

loch_status loch_comm_reduce(loch_comm *comm, loch_tensor *to, loch_tensor *from, loch_comm_op op, int root,
                             loch_stream *stream)
{
    comm_call call = {.verb = COMM_REDUCE, .op = op, .peer = root};
    loch_status status = call_begin(comm, stream, &call);
    if (status == LOCH_OK) status = reduce_check(comm, to, from, &call);
    return call_end(comm, &call, stream, status);
}

static loch_status all_to_all_check(loch_comm *comm, loch_tensor *to, loch_tensor *from, comm_call *call)
{
    LOCH_RETURN(check_pair(to, from, 1, call));
    LOCH_RETURN(call_take(comm, to, from, call));
    const size_t elements = call->count;
    if (elements % (size_t)comm->ranks)
        return LOCH_FAIL(INVALID, "%zu elements of an all-to-all are not a multiple of %d ranks", elements,
                         comm->ranks);
    call->count = elements / (size_t)comm->ranks;
    return check_overlap(call->to, elements * call->bytes, call->from, elements * call->bytes, false);
}

loch_status loch_comm_all_to_all(loch_comm *comm, loch_tensor *to, loch_tensor *from, loch_stream *stream)
{
    comm_call call = {.verb = COMM_ALL_TO_ALL};
    loch_status status = call_begin(comm, stream, &call);
    if (status == LOCH_OK) status = all_to_all_check(comm, to, from, &call);
    return call_end(comm, &call, stream, status);
}

/* Checks that each part lies inside its tensor. */
static loch_status check_parts(const loch_comm *comm, const loch_tensor *tensor, const size_t *counts,
                               const size_t *offsets, const char *what)
{
    const size_t elements = loch_tensor_get_elements(tensor);
    for (int i = 0; i < comm->ranks; i++)
        if (offsets[i] > elements || counts[i] > elements - offsets[i])
            return LOCH_FAIL(OUT_OF_RANGE, "the part of rank %d in '%s' is %zu elements at %zu, and the tensor has %zu",
                             i, what, counts[i], offsets[i], elements);
    return LOCH_OK;
}

/* Checks that no two parts of `to` overlap. Parts that lie in the order of ranks, as they do mostly, are quick. */
static loch_status check_apart(const loch_comm *comm, const size_t *counts, const size_t *offsets)
{
    int ordered = 1;
    while (ordered < comm->ranks && offsets[ordered] >= offsets[ordered - 1] + counts[ordered - 1])
        ordered++;
    if (ordered >= comm->ranks) return LOCH_OK;
    for (int i = 0; i < comm->ranks; i++)
        for (int j = 0; j < i; j++)
            if (counts[i] && counts[j] && offsets[i] < offsets[j] + counts[j] && offsets[j] < offsets[i] + counts[i])
                return LOCH_FAIL(INVALID, "the parts of rank %d and rank %d in 'to' overlap", j, i);
    return LOCH_OK;
}

static loch_status all_to_all_v_check(loch_comm *comm, loch_tensor *to, loch_tensor *from, comm_call *call)
{
    if (!call->to_counts || !call->to_offsets || !call->from_counts || !call->from_offsets)
        return LOCH_FAIL(INVALID, "counts or offsets of an all-to-all are NULL");
    LOCH_RETURN(call_take(comm, to, from, call));
    call->dtype = loch_tensor_get_dtype(from);
    call->bytes = loch_dtype_bytes(call->dtype);
    if (loch_tensor_get_dtype(to) != call->dtype)
        return LOCH_FAIL(INVALID, "the tensors of a collective have two types, %s and %s",
                         loch_dtype_name(loch_tensor_get_dtype(to)), loch_dtype_name(call->dtype));
    LOCH_RETURN(check_parts(comm, to, call->to_counts, call->to_offsets, "to"));
    LOCH_RETURN(check_parts(comm, from, call->from_counts, call->from_offsets, "from"));
    LOCH_RETURN(check_apart(comm, call->to_counts, call->to_offsets));
    if (call->to_counts[comm->rank] != call->from_counts[comm->rank])
        return LOCH_FAIL(INVALID, "rank %d sends itself %zu elements and expects %zu", comm->rank,
                         call->from_counts[comm->rank], call->to_counts[comm->rank]);
    return check_overlap(call->to, loch_tensor_get_bytes(to), call->from, loch_tensor_get_bytes(from), false);
}

loch_status loch_comm_all_to_all_v(loch_comm *comm, loch_tensor *to, const size_t *to_counts, const size_t *to_offsets,
                                   loch_tensor *from, const size_t *from_counts, const size_t *from_offsets,
                                   loch_stream *stream)
{
    comm_call call = {.verb = COMM_ALL_TO_ALL_V,
                      .to_counts = to_counts,
                      .to_offsets = to_offsets,
                      .from_counts = from_counts,
                      .from_offsets = from_offsets};
    loch_status status = call_begin(comm, stream, &call);
    if (status == LOCH_OK) status = all_to_all_v_check(comm, to, from, &call);
    return call_end(comm, &call, stream, status);
}

static loch_status message_check(loch_comm *comm, loch_tensor *tensor, comm_call *call)
{
    LOCH_RETURN(check_rank(comm, call->peer, "other side of a message"));
    if (call->peer == comm->rank && !comm->is_grouped)
        return LOCH_FAIL(INVALID, "rank %d sends to itself or receives from itself outside of a group", comm->rank);
    LOCH_RETURN(check_pair(tensor, tensor, 1, call));
    void *address;
    const loch_access access = call->verb == COMM_SEND ? LOCH_READ_ONLY : LOCH_READ_WRITE;
    LOCH_RETURN(lochi_comm_uses_add(comm, tensor, access, "tensor", call->stream, &address));
    if (call->verb == COMM_SEND)
        call->from = address;
    else
        call->to = address;
    return LOCH_OK;
}

loch_status loch_comm_send(loch_comm *comm, loch_tensor *tensor, int peer, loch_stream *stream)
{
    comm_call call = {.verb = COMM_SEND, .peer = peer};
    loch_status status = call_begin(comm, stream, &call);
    if (status == LOCH_OK) status = message_check(comm, tensor, &call);
    return call_end(comm, &call, stream, status);
}

loch_status loch_comm_receive(loch_comm *comm, loch_tensor *tensor, int peer, loch_stream *stream)
{
    comm_call call = {.verb = COMM_RECEIVE, .peer = peer};
    loch_status status = call_begin(comm, stream, &call);
    if (status == LOCH_OK) status = message_check(comm, tensor, &call);
    return call_end(comm, &call, stream, status);
}

/* --- groups, barriers and waiting --- */

loch_status loch_comm_begin_group(loch_comm *comm)
{
    LOCHI_NOT_CANCELLED;
    if (!comm) return LOCH_FAIL(INVALID, "the communicator is NULL");
    LOCH_RETURN(lochi_comm_failure_get(comm));
    if (comm->is_grouped) return LOCH_FAIL(INVALID, "a group is open already, and groups do not nest");
    LOCH_RETURN(comm->engine->begin_group(comm));
    comm->is_grouped = true;
    comm->group_stream = NULL;
    comm->group_waits = false;
    comm->group_error.status = LOCH_OK;
    return LOCH_OK;
}

loch_status loch_comm_end_group(loch_comm *comm)
{
    LOCHI_NOT_CANCELLED;
    if (!comm) return LOCH_FAIL(INVALID, "the communicator is NULL");
    if (comm->epoch != lochi_comm_fork_epoch) return lochi_comm_failure_get(comm);
    if (!comm->is_grouped) return LOCH_FAIL(INVALID, "there is no group to end");
    loch_status status = comm->group_error.status;
    const loch_status ended = comm->engine->end_group(comm, status);
    status = status == LOCH_OK ? ended : lochi_comm_error_restore(&comm->group_error);
    status = lochi_comm_uses_end(comm, comm->group_stream, status);
    if (status == LOCH_OK && comm->group_waits) status = comm->engine->sync(comm, comm->group_stream);
    const loch_error error = *loch_error_get();
    loch_stream_release(comm->group_stream);
    comm->group_stream = NULL;
    comm->is_grouped = false;
    return status == LOCH_OK ? LOCH_OK : lochi_comm_error_restore(&error);
}

loch_status loch_comm_barrier(loch_comm *comm)
{
    LOCHI_NOT_CANCELLED;
    if (!comm) return LOCH_FAIL(INVALID, "the communicator is NULL");
    LOCH_RETURN(lochi_comm_failure_get(comm));
    if (comm->is_grouped) return LOCH_FAIL(INVALID, "a barrier cannot be in a group");
    return comm->engine->barrier(comm);
}

loch_status loch_comm_sync(loch_comm *comm, loch_stream *stream)
{
    LOCHI_NOT_CANCELLED;
    if (!comm) return LOCH_FAIL(INVALID, "the communicator is NULL");
    if (comm->epoch != lochi_comm_fork_epoch) return lochi_comm_failure_get(comm);
    if (comm->is_grouped) return LOCH_FAIL(INVALID, "the calls of an open group have not begun: end the group first");
    return comm->engine->sync(comm, stream ? stream : loch_stream_get_default(comm->device));
}

loch_status loch_comm_query(loch_comm *comm)
{
    if (!comm) return LOCH_FAIL(INVALID, "the communicator is NULL");
    return lochi_comm_failure_get(comm);
}

/* --- windows --- */

loch_status loch_comm_add_window(loch_comm *comm, loch_buffer *buffer)
{
    LOCHI_NOT_CANCELLED;
    if (!comm) return LOCH_FAIL(INVALID, "the communicator is NULL");
    LOCH_RETURN(lochi_comm_failure_get(comm));
    if (!buffer || !loch_buffer_get_bytes(buffer)) return LOCH_FAIL(INVALID, "a window needs a buffer with memory");
    if (comm->is_grouped) return LOCH_FAIL(INVALID, "a window cannot be made in a group");
    return comm->engine->add_window(comm, buffer);
}

loch_status loch_comm_remove_window(loch_comm *comm, loch_buffer *buffer)
{
    LOCHI_NOT_CANCELLED;
    if (!comm) return LOCH_FAIL(INVALID, "the communicator is NULL");
    LOCH_RETURN(lochi_comm_failure_get(comm));
    if (comm->is_grouped) return LOCH_FAIL(INVALID, "a window cannot be ended in a group");
    return comm->engine->remove_window(comm, buffer);
}
