/* SPDX-License-Identifier: MIT */
/* Notes on the blocks of sessions. */
#ifndef LOCHI_SESSION_NOTE_H
#define LOCHI_SESSION_NOTE_H

#include "base/lock.h"
#include "memory/allocator.h"
#include "memory/session/state.h"

/* Guards all tables and lists of sessions. LOCHI_RANK_LEAF: nothing is called while it is held. */
extern lochi_lock lochi_session_lock;

/* --- the lock is held --- */

/* Returns the note on the block at `address`; NULL if the block is in no session. */
static inline lochi_session_block *lochi_note_find(const loch_allocator *owner, const void *address)
{
    lochi_lock_assert_held(&lochi_session_lock);
    lochi_tree_node *node = lochi_tree_at_or_below(&owner->session_blocks, (uintptr_t)address);
    if (!node || node->key != (uintptr_t)address) return NULL;
    return LOCHI_CONTAINER(node, lochi_session_block, node);
}

/* Inserts a note into a list. */
static inline void lochi_note_link(lochi_session_block **list, lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    block->next = *list;
    block->link = list;
    if (*list) (*list)->link = &block->next;
    *list = block;
}

/* Removes a note from its list. */
static inline void lochi_note_unlink(lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    *block->link = block->next;
    if (block->next) block->next->link = block->link;
}

/* Adds a note to the table of its allocator. */
static inline void lochi_note_table_add(lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    lochi_tree_insert(&block->owner->session_blocks, &block->node);
    atomic_fetch_add_explicit(&block->owner->session_count, 1, memory_order_relaxed);
}

/* Removes a note from the table of its allocator. */
static inline void lochi_note_table_remove(lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    lochi_tree_remove(&block->owner->session_blocks, &block->node);
    atomic_fetch_sub_explicit(&block->owner->session_count, 1, memory_order_relaxed);
}

/* Adds bytes to the bytes of a session. */
static inline void lochi_note_count_bytes(loch_session *session, size_t bytes)
{
    lochi_lock_assert_held(&lochi_session_lock);
    session->bytes += bytes;
    if (session->bytes > session->peak) session->peak = session->bytes;
}

/* Adds a note to a list of its session, and counts the block. */
static inline void lochi_note_list_add(lochi_session_block **list, lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    lochi_note_link(list, block);
    block->session->count++;
    lochi_note_count_bytes(block->session, block->bytes);
}

/* Removes a note from the list of its session, and counts the block out. */
static inline void lochi_note_list_remove(lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    lochi_note_unlink(block);
    block->session->count--;
    block->session->bytes -= block->bytes;
}

/* Removes a note from its table and list. Until lochi_note_settle the note keeps the session's allocator alive. */
static inline void lochi_note_take(lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    lochi_note_table_remove(block);
    if (!block->is_promoted) lochi_note_list_remove(block);
    if (!block->is_handled) atomic_fetch_add_explicit(&block->session->allocator->live, 1, memory_order_relaxed);
}

/* Puts back a note that lochi_note_take removed. If the session has ended in between, the block belongs to no
 * session, like a promoted one. Returns false if the note is not needed any more. */
bool lochi_note_put_back(lochi_session_block **list, lochi_session_block *block);

/* --- the lock is not held --- */

/* Frees a note that was removed, or puts it back if the block was not freed. Returns whether the session's allocator
 * has one live block less now. */
bool lochi_note_settle(lochi_session_block *block, bool is_gone);

/* Returns E_INVALID: the session has ended. */
loch_status lochi_session_refuse(const loch_session *session);

#endif
