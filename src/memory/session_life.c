/* SPDX-License-Identifier: MIT */
/* Sessions begin and end: a session's own allocator, and the free of all its blocks. */
#include "base/fail.h"
#include "base/heap.h"
#include "device/device.h"
#include "memory/life.h"
#include "memory/realloc.h"
#include "memory/session.h"

/* --- the session's allocator --- */

static loch_status session_alloc(void *self, const loch_request *request, void **out)
{
    return lochi_allocator_try(((loch_session *)self)->wrapped, request, out);
}

/* Who called this looks whether the allocator is over. */
static loch_status session_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    loch_session *session = self;
    lochi_session_block *block = lochi_session_take(session->wrapped, address);
    const loch_status status = lochi_allocator_give_back(session->wrapped, address, bytes, stream);
    if (!block) return status;
    if (block->session != session) /* one of another session on the same allocator */
        lochi_allocator_settle(block, lochi_session_is_gone(status));
    else if (lochi_session_put(block, lochi_session_is_gone(status)))
        atomic_fetch_sub_explicit(&session->allocator->live, 1, memory_order_relaxed);
    return status;
}

static loch_status session_find_block(void *self, const void *address, loch_block *out)
{
    return loch_allocator_find(((loch_session *)self)->wrapped, address, out);
}

static loch_status session_resize(void *self, void *address, size_t bytes, size_t *allocated)
{
    return lochi_allocator_resize_in_place(((loch_session *)self)->wrapped, address, bytes, allocated);
}

static void session_destroy(void *self)
{
    lochi_free(self);
}

static const loch_allocator_ops session_ops = {
    .size = sizeof session_ops,
    .kind = "session",
    .alloc = session_alloc,
    .free = session_free,
    .destroy = session_destroy,
    .find = session_find_block,
    .resize = session_resize,
};

/* --- beginning and ending --- */

loch_status loch_session_begin(loch_allocator *allocator, const char *name, loch_session **out)
{
    if (out) *out = NULL;
    if (!allocator || !out) return LOCH_FAIL(INVALID, "a session needs an allocator and a place");
    while (lochi_session_is_own(allocator))
        allocator = allocator->wrapped;
    loch_session *session = lochi_zalloc(sizeof *session);
    if (!session) return LOCH_FAIL(HOST_MEMORY, "no host memory for a session");
    session->wrapped = allocator;
    const loch_status status =
        lochi_wrapper_create(allocator, name, &session_ops, session, LOCHI_ACCOUNT_NOTES, &session->allocator);
    if (status != LOCH_OK) {
        lochi_free(session);
        return status;
    }
    session->allocator->session = session;
    *out = session;
    return LOCH_OK;
}

loch_status loch_session_end(loch_session *session, loch_stream *stream, size_t *bytes)
{
    if (bytes) *bytes = 0;
    if (!session) return LOCH_FAIL(INVALID, "there is no session to end");
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, session->wrapped->device));
    LOCH_TRY_RETURN(lochi_session_begin_end(session));
    loch_status first = LOCH_OK;
    loch_error error;
    lochi_session_block *block;
    while ((block = lochi_session_next(session, first != LOCH_OK))) {
        void *address = (void *)block->node.key;
        const size_t freed = block->bytes;
        const loch_status status =
            stream ? loch_allocator_free_on(block->owner, address, stream) : loch_allocator_free(block->owner, address);
        if (status != LOCH_OK && first == LOCH_OK) {
            first = status;
            error = lochi_error_save();
        }
        if (bytes && lochi_is_freed(status)) *bytes += freed;
        loch_allocator *left =
            lochi_session_is_gone(status) ? lochi_session_settle(block, true) : lochi_session_keep(block);
        if (left) lochi_allocator_count_out(left);
    }
    if (first == LOCH_OK)
        loch_allocator_release(session->allocator);
    else
        lochi_error_restore(&error);
    return first;
}
