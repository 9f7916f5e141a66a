/* SPDX-License-Identifier: MIT */
/* Sessions. The session of a new block is chosen when the outermost allocator is called (memory/allocator.c). The
 * block is later freed through that allocator, so every wrapper sees the free. The session's own allocator changes
 * nothing, so its blocks are noted as blocks of the allocator that it wraps, and may be freed through either.
 *
 * A note is in the table of its allocator, by address, and in the list of its session. Every free on a slow path
 * searches the table unless it is empty, and takes the note out first. Blocks of sessions never take the fast path
 * back into a pool (lochi_pool_keep_off). A thread in a session on a pool has no cache there, so it never allocates
 * on the fast path.
 *
 * One lock guards all tables and lists. It is a leaf, because nothing is called under it. When a pool moves a block,
 * which it does under its own lock, it updates the note. The end of a session takes notes out under the pool's lock,
 * and makes the block stay at its address.
 *
 * The session lies in the memory of its allocator, so that allocator must live as long as anything refers to the
 * session. Until the end, the session's own reference keeps it alive. Afterwards its live blocks do; promoted ones
 * keep their notes for this. A thread that has taken a note out counts as a live block. */
#ifndef LOCHI_SESSION_STATE_H
#define LOCHI_SESSION_STATE_H

#include "base/tree.h"
#include <loch/session.h>
#include <stdbool.h>

/* A note: a block of a session, in the table of the allocator that handed it out. */
typedef struct lochi_session_block {
    lochi_tree_node node; /* key: the address of the block */
    loch_session *session;
    loch_allocator *owner; /* allocator to free the block through; the note is in its table */
    struct lochi_session_block *next, **link;
    size_t bytes;
    bool is_handled;  /* came through the session's allocator, and counts as its live block */
    bool is_promoted; /* in no list any more */
} lochi_session_block;

struct loch_session {
    loch_allocator *allocator, *wrapped;
    lochi_session_block *blocks; /* this and the members below: under lochi_session_lock */
    lochi_session_block *failed; /* blocks that the present end of the session could not free */
    size_t count, bytes, peak;
    size_t entered;
    bool is_ending, is_over;
};

#endif
