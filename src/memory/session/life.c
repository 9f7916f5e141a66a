/* SPDX-License-Identifier: MIT */
/* Creating and ending sessions, and the allocator of a session. */
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "device/device.h"
#include "memory/grow.h"
#include "memory/pool/pool.h"
#include "memory/session/note.h"
#include "memory/session/session.h"
#include <string.h>

/* --- the session's allocator --- */

static loch_status life_alloc(void *self, const loch_request *request, void **out)
{
    return lochi_allocator_try(((loch_session *)self)->wrapped, request, out);
}

/* Frees a block. The caller checks whether the allocator must be destroyed. */
static loch_status life_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    loch_session *session = self;
    lochi_session_block *block = lochi_session_take(session->wrapped, address);
    const loch_status status = lochi_allocator_give_back(session->wrapped, address, bytes, stream);
    if (!block) return status;
    if (block->session != session) /* a block of another session on the same allocator */
        lochi_session_settle(block, lochi_session_is_gone(status));
    else if (lochi_note_settle(block, lochi_session_is_gone(status)))
        atomic_fetch_sub_explicit(&session->allocator->live, 1, memory_order_relaxed);
    return status;
}

static loch_status life_find_block(void *self, const void *address, loch_block *out)
{
    return loch_allocator_find(((loch_session *)self)->wrapped, address, out);
}

static loch_status life_resize(void *self, void *address, size_t bytes, size_t *allocated)
{
    loch_allocator *wrapped = ((loch_session *)self)->wrapped;
    return lochi_grow_concerns(wrapped, address) ? lochi_grow_pass(wrapped, address, bytes, allocated)
                                                 : lochi_allocator_resize_in_place(wrapped, address, bytes, allocated);
}

static void life_destroy(void *self)
{
    lochi_free(self);
}

static const loch_allocator_ops life_ops = {
    .size = sizeof life_ops,
    .kind = "session",
    .alloc = life_alloc,
    .free = life_free,
    .destroy = life_destroy,
    .find = life_find_block,
    .resize = life_resize,
};

/* --- beginning, promoting, statistics --- */

loch_status loch_session_begin(loch_allocator *allocator, const char *name, loch_session **out)
{
    if (out) *out = NULL;
    if (!allocator || !out) return LOCH_FAIL(INVALID, "a session needs an allocator and an out pointer");
    while (lochi_session_is_own(allocator))
        allocator = allocator->wrapped;
    loch_session *session = lochi_zalloc(sizeof *session);
    if (!session) return LOCH_FAIL(HOST_MEMORY, "no host memory for a session");
    session->wrapped = allocator;
    const loch_status status =
        lochi_wrapper_create(allocator, name, &life_ops, session, LOCHI_ACCOUNT_NOTES, &session->allocator);
    if (status != LOCH_OK) {
        lochi_free(session);
        return status;
    }
    session->allocator->session = session;
    *out = session;
    return LOCH_OK;
}

loch_allocator *loch_session_get_allocator(const loch_session *session)
{
    return session ? session->allocator : NULL;
}

/* Finds a session's block by address. Blocks that came through wrappers around its allocator need a search of the
 * list. */
static lochi_session_block *life_find_own(const loch_session *session, const void *address)
{
    lochi_lock_assert_held(&lochi_session_lock);
    lochi_session_block *block = lochi_note_find(session->wrapped, address);
    if (block && block->session == session && !block->is_promoted) return block;
    for (block = session->blocks; block && block->node.key != (uintptr_t)address; block = block->next)
        ;
    return block;
}

loch_status loch_session_promote(loch_session *session, void *address)
{
    if (!session || !address) return LOCH_FAIL(INVALID, "promoting needs a session and a block");
    lochi_lock_take(&lochi_session_lock);
    lochi_session_block *block = life_find_own(session, address), *gone = NULL;
    if (block) {
        lochi_note_list_remove(block);
        block->is_promoted = true;
        if (!block->is_handled) {
            lochi_note_table_remove(block);
            gone = block;
        }
    }
    lochi_lock_drop(&lochi_session_lock);
    lochi_free(gone);
    if (block) return LOCH_OK;
    return LOCH_FAIL(FOREIGN, "session \"%s\" has no block at %p", session->allocator->name, address);
}

loch_status loch_session_get_stats(loch_session *session, loch_session_stats *out)
{
    if (!session || !lochi_sized_is_set(out))
        return LOCH_FAIL(INVALID, "session statistics need a session and a struct whose size is set");
    loch_session_stats stats = {.size = sizeof stats};
    lochi_lock_take(&lochi_session_lock);
    stats.blocks = session->count;
    stats.bytes = session->bytes;
    stats.peak_bytes = session->peak;
    lochi_lock_drop(&lochi_session_lock);
    lochi_sized_write(out, &stats, sizeof stats);
    return LOCH_OK;
}

/* --- the end --- */

/* Begins the end of a session. From now on no block is added. */
static loch_status life_begin_end(loch_session *session)
{
    lochi_lock_take(&lochi_session_lock);
    const size_t entered = session->entered;
    const bool is_busy = entered || session->is_ending;
    if (!is_busy) session->is_ending = true;
    lochi_lock_drop(&lochi_session_lock);
    if (!is_busy) return LOCH_OK;
    if (!entered) return LOCH_FAIL(BUSY, "session \"%s\" is being ended already", session->allocator->name);
    return LOCH_FAIL(BUSY, "session \"%s\" cannot end: threads entered it %zu times and did not leave",
                     session->allocator->name, entered);
}

/* Takes out the next block to free; NULL if every block was tried. The session is over then, or, if a free has
 * failed, it stays open with the blocks that are left. */
static lochi_session_block *life_next(loch_session *session, bool has_failed)
{
    lochi_lock_take(&lochi_session_lock);
    lochi_session_block *block = session->blocks;
    if (block) {
        lochi_note_take(block);
    } else {
        session->blocks = session->failed;
        if (session->blocks) session->blocks->link = &session->blocks;
        session->failed = NULL;
        session->is_over = !has_failed;
        session->is_ending = !has_failed;
    }
    lochi_lock_drop(&lochi_session_lock);
    return block;
}

/* Takes out the next block to free. From then on its pool no longer moves the block. */
static lochi_session_block *life_next_still(loch_session *session, bool has_failed)
{
    lochi_pool *pool = session->wrapped->pool;
    if (!pool) return life_next(session, has_failed);
    lochi_pool_hold_still(pool);
    lochi_session_block *block = life_next(session, has_failed);
    if (block && block->owner == session->wrapped) lochi_pool_make_stay(pool, (const void *)block->node.key);
    lochi_pool_let_move(pool);
    return block;
}

/* Keeps a block that could not be freed. This end does not try it again. */
static void life_keep(lochi_session_block *block)
{
    loch_allocator *allocator = block->session->allocator;
    const bool is_handled = block->is_handled;
    lochi_lock_take(&lochi_session_lock);
    const bool is_kept = lochi_note_put_back(&block->session->failed, block);
    lochi_lock_drop(&lochi_session_lock);
    if (!is_kept) lochi_free(block);
    if (!is_kept || !is_handled) lochi_allocator_count_out(allocator);
}

loch_status loch_session_end(loch_session *session, loch_stream *stream, size_t *bytes)
{
    if (bytes) *bytes = 0;
    if (!session) return LOCH_FAIL(INVALID, "there is no session to end");
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, session->wrapped->device));
    LOCH_TRY_RETURN(life_begin_end(session));
    loch_status first = LOCH_OK;
    loch_error error;
    lochi_session_block *block;
    while ((block = life_next_still(session, first != LOCH_OK))) {
        void *address = (void *)block->node.key;
        const size_t freed = block->bytes;
        const loch_status status =
            stream ? loch_allocator_free_on(block->owner, address, stream) : loch_free(block->owner, address);
        if (status != LOCH_OK && first == LOCH_OK) {
            first = status;
            error = lochi_error_save();
        }
        if (bytes && lochi_is_freed(status)) *bytes += freed;
        if (lochi_session_is_gone(status))
            lochi_session_settle(block, true);
        else
            life_keep(block);
    }
    if (first == LOCH_OK)
        loch_allocator_release(session->allocator);
    else
        lochi_error_restore(&error);
    return first;
}
