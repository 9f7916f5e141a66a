/* SPDX-License-Identifier: MIT */
/* Tensors of a call, or of a group: checked, retained and pinned one by one, and unpinned together when the work is
 * queued. Unpinning records the use on the stream: the memory is reused only behind the work. */
#include "uses.h"
#include "kit/fail.h"
#include <stdlib.h>

static loch_status uses_grow(loch_comm *comm)
{
    if (comm->uses_count < comm->uses_capacity) return LOCH_OK;
    const size_t capacity = comm->uses_capacity ? 2 * comm->uses_capacity : COMM_USES_FIRST;
    comm_use *uses = realloc(comm->uses, capacity * sizeof *uses);
    if (!uses) return LOCH_FAIL(HOST_MEMORY, "no host memory for a group of %zu tensors", capacity);
    comm->uses = uses;
    comm->uses_capacity = capacity;
    return LOCH_OK;
}

static loch_status uses_check(loch_comm *comm, const loch_tensor *tensor, loch_access access, const char *what)
{
    if (!tensor) return LOCH_FAIL(INVALID, "the tensor '%s' of a collective is NULL", what);
    if (!loch_tensor_is_contiguous(tensor))
        return LOCH_FAIL(INVALID, "the tensor '%s' of a collective is not contiguous: copy it first", what);
    if (access == LOCH_READ_WRITE && loch_tensor_get_access(tensor) == LOCH_READ_ONLY)
        return LOCH_FAIL(INVALID, "the tensor '%s' of a collective is written, and it is read-only", what);
    return comm->engine->accept(comm, tensor, what);
}

loch_status lochi_comm_uses_add(loch_comm *comm, loch_tensor *tensor, loch_access access, const char *what,
                                loch_stream *stream, void **out)
{
    *out = NULL;
    LOCH_RETURN(uses_check(comm, tensor, access, what));
    LOCH_RETURN(uses_grow(comm));
    loch_buffer *buffer = loch_tensor_get_buffer(tensor);
    void *unused;
    LOCH_RETURN(loch_buffer_pin(buffer, stream, &unused));
    const loch_status status = loch_tensor_get_address(tensor, out);
    if (status != LOCH_OK) {
        const loch_error error = *loch_error_get();
        const loch_status ended = loch_buffer_unpin(buffer, stream);
        (void)ended; /* the first failure is reported */
        return lochi_comm_error_restore(&error);
    }
    comm->uses[comm->uses_count++] = (comm_use){loch_tensor_retain(tensor), access};
    return LOCH_OK;
}

loch_status lochi_comm_uses_end(loch_comm *comm, loch_stream *stream, loch_status status)
{
    loch_error error;
    error.status = status;
    if (status != LOCH_OK) error = *loch_error_get();
    for (size_t i = 0; i < comm->uses_count; i++) {
        const comm_use *use = &comm->uses[i];
        loch_buffer *buffer = loch_tensor_get_buffer(use->tensor);
        if (use->access == LOCH_READ_WRITE) loch_buffer_touch(buffer);
        const loch_status ended = loch_buffer_unpin(buffer, stream);
        if (ended != LOCH_OK && error.status == LOCH_OK) error = *loch_error_get();
        loch_tensor_release(use->tensor);
    }
    comm->uses_count = 0;
    return error.status == LOCH_OK ? LOCH_OK : lochi_comm_error_restore(&error);
}
