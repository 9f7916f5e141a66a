/* SPDX-License-Identifier: MIT */
/* Blocks of sessions on the paths of allocation and free. state.h says how sessions work. */
#include "memory/session/session.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/pool.h"
#include "memory/session/note.h"

_Thread_local lochi_session_frame *lochi_session_top;

/* --- allocating --- */

bool lochi_session_is_own(const loch_allocator *allocator)
{
    return allocator->session && allocator->session->allocator == allocator;
}

/* Returns the session of a new block; NULL: no session. The outermost allocator with a session wins. For one
 * allocator, the session that the thread entered last comes before the session to which the allocator belongs. */
static loch_session *session_choose(const loch_allocator *allocator)
{
    if (lochi_session_top && !lochi_session_top->session) return NULL;
    for (; allocator; allocator = allocator->wrapped) {
        for (const lochi_session_frame *frame = lochi_session_top; frame; frame = frame->next)
            if (frame->session->wrapped == allocator) return frame->session;
        if (lochi_session_is_own(allocator)) return allocator->session;
    }
    return NULL;
}

static bool session_is_ending(const loch_session *session)
{
    lochi_lock_take(&lochi_session_lock);
    const bool is_ending = session->is_ending;
    lochi_lock_drop(&lochi_session_lock);
    return is_ending;
}

loch_status lochi_session_begin_alloc(loch_allocator *allocator, lochi_session_alloc *alloc)
{
    *alloc = (lochi_session_alloc){.allocator = allocator, .session = session_choose(allocator)};
    if (alloc->session) {
        if (session_is_ending(alloc->session)) return lochi_session_refuse(alloc->session);
        alloc->block = lochi_zalloc(sizeof *alloc->block);
        if (!alloc->block) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a session's block");
    }
    lochi_session_hush(&alloc->frame);
    return LOCH_OK;
}

/* Adds a note. Returns false if the session has ended in between. */
static bool session_add(lochi_session_block *block)
{
    lochi_session_block *stale = NULL;
    lochi_lock_take(&lochi_session_lock);
    const bool is_open = !block->session->is_ending;
    if (is_open) {
        stale = lochi_note_find(block->owner, (const void *)block->node.key);
        if (stale) lochi_note_take(stale); /* the old block was freed past its allocator */
        lochi_note_table_add(block);
        lochi_note_list_add(&block->session->blocks, block);
        if (block->is_handled) atomic_fetch_add_explicit(&block->session->allocator->live, 1, memory_order_relaxed);
    }
    lochi_lock_drop(&lochi_session_lock);
    if (stale) lochi_session_settle(stale, true);
    return is_open;
}

loch_status lochi_session_end_alloc(lochi_session_alloc *alloc, loch_status status, size_t bytes, void **out)
{
    lochi_session_block *block = alloc->block;
    lochi_session_unhush(&alloc->frame);
    if (!block) return status;
    if (status != LOCH_OK || !*out) {
        lochi_free(block);
        return status;
    }
    block->session = alloc->session;
    block->is_handled = alloc->allocator == alloc->session->allocator;
    block->owner = block->is_handled ? alloc->session->wrapped : alloc->allocator;
    block->node.key = (uintptr_t)*out;
    block->bytes = bytes;
    if (block->owner->pool) lochi_pool_keep_off(block->owner->pool, *out);
    if (session_add(block)) return LOCH_OK;
    status = lochi_session_refuse(alloc->session);
    lochi_free(block);
    lochi_allocator_abandon(alloc->allocator, *out, 0, NULL);
    *out = NULL;
    return status;
}

bool lochi_session_is_in(const loch_allocator *allocator)
{
    for (const lochi_session_frame *frame = lochi_session_top; frame; frame = frame->next)
        if (frame->session && frame->session->wrapped == allocator) return true;
    return false;
}

/* --- freeing --- */

lochi_session_block *lochi_session_take_any(loch_allocator *allocator, const void *address)
{
    lochi_lock_take(&lochi_session_lock);
    lochi_session_block *block = lochi_note_find(allocator, address);
    if (block) lochi_note_take(block);
    lochi_lock_drop(&lochi_session_lock);
    return block;
}

void lochi_session_settle(lochi_session_block *block, bool is_gone)
{
    loch_allocator *allocator = block->session->allocator;
    if (lochi_note_settle(block, is_gone)) lochi_allocator_count_out(allocator);
}

lochi_session_block *lochi_session_take_moving(loch_allocator *allocator, const void *address)
{
    return lochi_session_take(lochi_session_is_own(allocator) ? allocator->wrapped : allocator, address);
}

void lochi_session_settle_moved(lochi_session_block *block, void *address, size_t bytes)
{
    block->node.key = (uintptr_t)address;
    block->bytes = bytes;
    if (block->owner->pool) lochi_pool_keep_off(block->owner->pool, address);
    lochi_session_settle(block, false);
}

void lochi_session_follow(loch_allocator *allocator, const void *from, void *to)
{
    if (!atomic_load_explicit(&allocator->session_count, memory_order_relaxed)) return;
    lochi_lock_take(&lochi_session_lock);
    lochi_session_block *block = lochi_note_find(allocator, from);
    if (block) {
        lochi_note_table_remove(block);
        block->node.key = (uintptr_t)to;
        lochi_note_table_add(block);
    }
    lochi_lock_drop(&lochi_session_lock);
}

void lochi_session_note_size(loch_allocator *allocator, const void *address, size_t bytes)
{
    if (!atomic_load_explicit(&allocator->session_count, memory_order_relaxed)) return;
    lochi_lock_take(&lochi_session_lock);
    lochi_session_block *block = lochi_note_find(allocator, address);
    if (block && !block->is_promoted) {
        block->session->bytes -= block->bytes;
        lochi_note_count_bytes(block->session, bytes);
    }
    if (block) block->bytes = bytes;
    lochi_lock_drop(&lochi_session_lock);
}
