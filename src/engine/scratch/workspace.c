/* SPDX-License-Identifier: MIT */
/* Workspaces: one buffer for the work of one stream, which grows on demand.
 *
 * The buffer in use never changes. A larger buffer replaces it, and callers that hold the old one keep it. All of them
 * are allocated for the same stream, so their memory is freed after the work that was queued with their addresses. */
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "device/device.h"
#include <loch/scratch.h>

struct loch_workspace {
    loch_allocator *allocator;
    loch_request request; /* its stream is that of the workspace */
    lochi_lock lock;      /* LOCHI_RANK_SCRATCH: guards the members below */
    loch_buffer *buffer;  /* NULL before the first use and after a trim */
};

loch_status loch_workspace_create(loch_allocator *allocator, loch_stream *stream, const loch_request *request,
                                  loch_workspace **out)
{
    if (out) *out = NULL;
    if (!allocator || !out) return LOCH_FAIL(INVALID, "a workspace needs an allocator and an out pointer");
    loch_device *device = loch_allocator_get_device(allocator);
    loch_request read = {.size = sizeof read};
    LOCH_TRY_RETURN(lochi_sized_read("loch_request", request, &read, sizeof read));
    if (!stream) stream = loch_stream_get_default(device);
    LOCH_TRY_RETURN(lochi_stream_check(stream, device));
    loch_workspace *workspace = lochi_zalloc(sizeof *workspace);
    if (!workspace) return LOCH_FAIL(HOST_MEMORY, "no host memory for a workspace");
    workspace->allocator = loch_allocator_retain(allocator);
    workspace->request = read;
    workspace->request.stream = stream;
    lochi_lock_init(&workspace->lock, LOCHI_RANK_SCRATCH);
    *out = workspace;
    return LOCH_OK;
}

void loch_workspace_destroy(loch_workspace *workspace)
{
    if (!workspace) return;
    loch_buffer_release(workspace->buffer);
    lochi_lock_fini(&workspace->lock);
    loch_allocator_release(workspace->allocator);
    lochi_free(workspace);
}

/* Returns the present buffer, retained, if it has `bytes` bytes. With `candidate`, first replaces a smaller buffer by
 * it. `candidate` then receives the buffer to release: the old one, or the candidate itself if another thread was
 * faster. */
static loch_buffer *workspace_share(loch_workspace *workspace, size_t bytes, loch_buffer **candidate)
{
    lochi_lock_take(&workspace->lock);
    loch_buffer *present = workspace->buffer;
    const bool is_enough = present && loch_buffer_get_bytes(present) >= bytes;
    if (!is_enough && candidate) {
        workspace->buffer = *candidate;
        *candidate = present;
    }
    loch_buffer *shared = is_enough || candidate ? loch_buffer_retain(workspace->buffer) : NULL;
    lochi_lock_drop(&workspace->lock);
    return shared;
}

loch_status loch_workspace_acquire(loch_workspace *workspace, size_t bytes, loch_buffer **out)
{
    if (out) *out = NULL;
    if (!workspace || !out) return LOCH_FAIL(INVALID, "taking a buffer needs a workspace and an out pointer");
    *out = workspace_share(workspace, bytes, NULL);
    if (*out) return LOCH_OK;
    loch_buffer *larger;
    LOCH_TRY_RETURN(loch_buffer_create(workspace->allocator, bytes, &workspace->request, &larger));
    *out = workspace_share(workspace, bytes, &larger);
    loch_buffer_release(larger);
    return LOCH_OK;
}
