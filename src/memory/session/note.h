/* SPDX-License-Identifier: MIT */
/* Notes on the blocks of sessions. */
#ifndef LOCHI_SESSION_NOTE_H
#define LOCHI_SESSION_NOTE_H

#include "base/lock.h"
#include "memory/allocator.h"
#include "memory/session/state.h"

/* Guards all tables and lists of sessions. LOCHI_RANK_LEAF: nothing is called under it. */
extern lochi_lock lochi_session_lock;

/* --- the lock is held --- */

/* Returns the note on the block at `address`; NULL: it is in no session. */
static inline lochi_session_block *lochi_note_find(const loch_allocator *owner, const void *address)
{
    lochi_lock_assert_held(&lochi_session_lock);
    lochi_tree_node *node = lochi_tree_at_or_below(&owner->session_blocks, (uintptr_t)address);
    if (!node || node->key != (uintptr_t)address) return NULL;
    return LOCHI_CONTAINER(node, lochi_session_block, node);
}

/* Links a note into a list. */
static inline void lochi_note_link(lochi_session_block **list, lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    block->next = *list;
    block->link = list;
    if (*list) (*list)->link = &block->next;
    *list = block;
}

/* Takes a note out of a list. */
static inline void lochi_note_unlink(lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    *block->link = block->next;
    if (block->next) block->next->link = block->link;
}

/* Enters a note into the table of its allocator. */
static inline void lochi_note_table_add(lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    lochi_tree_insert(&block->owner->session_blocks, &block->node);
    atomic_fetch_add_explicit(&block->owner->session_count, 1, memory_order_relaxed);
}

/* Takes a note out of the table of its allocator. */
static inline void lochi_note_table_remove(lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    lochi_tree_remove(&block->owner->session_blocks, &block->node);
    atomic_fetch_sub_explicit(&block->owner->session_count, 1, memory_order_relaxed);
}

/* Adds bytes to those of a session. */
static inline void lochi_note_count_bytes(loch_session *session, size_t bytes)
{
    lochi_lock_assert_held(&lochi_session_lock);
    session->bytes += bytes;
    if (session->bytes > session->peak) session->peak = session->bytes;
}

/* Enters a note into a list of its session, and counts the block. */
static inline void lochi_note_list_add(lochi_session_block **list, lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    lochi_note_link(list, block);
    block->session->count++;
    lochi_note_count_bytes(block->session, block->bytes);
}

/* Takes a note out of the list of its session, and counts the block out. */
static inline void lochi_note_list_remove(lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    lochi_note_unlink(block);
    block->session->count--;
    block->session->bytes -= block->bytes;
}

/* Takes a note out of table and list; it keeps the session's allocator alive meanwhile. */
static inline void lochi_note_take(lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    lochi_note_table_remove(block);
    if (!block->is_promoted) lochi_note_list_remove(block);
    if (!block->is_handled) atomic_fetch_add_explicit(&block->session->allocator->live, 1, memory_order_relaxed);
}

/* Puts a note back that lochi_note_take took out. If the session has ended meanwhile, the block belongs to none, like one that
 * was promoted. Returns false when the note is not needed any more. */
bool lochi_note_put_back(lochi_session_block **list, lochi_session_block *block);

/* --- the lock is not held --- */

/* Ends a note that was taken out, or puts it back when the block is still there. Returns whether the session's allocator has
 * one live block less now. */
bool lochi_note_settle(lochi_session_block *block, bool is_gone);

/* Fails with E_INVALID: the session has ended. */
loch_status lochi_session_refuse(const loch_session *session);

#endif
