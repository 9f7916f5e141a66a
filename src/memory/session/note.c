/* SPDX-License-Identifier: MIT */
/* Notes on the blocks of sessions: tables and lists, under one lock. */
#include "memory/session/note.h"
#include "base/fail.h"
#include "base/heap.h"

lochi_lock lochi_session_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_LEAF);

bool lochi_note_put_back(lochi_session_block **list, lochi_session_block *block)
{
    lochi_lock_assert_held(&lochi_session_lock);
    if (block->session->is_over) block->is_promoted = true;
    if (block->is_promoted && !block->is_handled) return false;
    if (lochi_note_find(block->owner, (const void *)block->node.key))
        return false; /* another block has the address by now */
    lochi_note_table_add(block);
    if (!block->is_promoted) lochi_note_list_add(list, block);
    return true;
}

bool lochi_note_settle(lochi_session_block *block, bool is_gone)
{
    const bool is_handled = block->is_handled;
    bool is_kept = false;
    if (!is_gone) {
        lochi_lock_take(&lochi_session_lock);
        is_kept = lochi_note_put_back(&block->session->blocks, block);
        lochi_lock_drop(&lochi_session_lock);
    }
    if (!is_kept) lochi_free(block);
    return !is_kept || !is_handled;
}

loch_status lochi_session_refuse(const loch_session *session)
{
    return LOCH_FAIL(INVALID, "session \"%s\" has ended", session->allocator->name);
}
