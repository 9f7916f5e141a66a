/* SPDX-License-Identifier: MIT */
/* Sessions. Which session a new block belongs to is found where the outermost allocator is asked for it (memory/allocator.c),
 * and that allocator is who gets it back in the end: so every wrapper hears of the free. The session's own allocator changes
 * nothing, so its blocks are noted as those of the allocator that it wraps, and may go back through either.
 *
 * A note is in the table of its allocator, by address, and in the list of its session. Every free that takes a long way looks
 * into the table while it is not empty, and takes the note out first; blocks of sessions never take the short way back into a
 * pool (lochi_pool_keep_off), and a thread that is in a session on a pool keeps nothing there, so it does not get any the
 * short way.
 *
 * One lock guards all tables and lists. It needs no rank, because nothing is called under it. When a pool moves a block, which
 * it does under its own lock, the note goes along; an end takes notes out under that lock, and has the block stay.
 *
 * The session lies in its allocator, which therefore lives as long as anything points at the session: until the end by the
 * session's own reference; later by its live blocks, of which those that were promoted keep their notes; and who has taken a
 * note out counts as one. */
#ifndef LOCHI_SESSION_STATE_H
#define LOCHI_SESSION_STATE_H

#include "base/tree.h"
#include <loch/session.h>
#include <stdbool.h>

/* A note: a block of a session, in the table of the allocator that handed it out. */
typedef struct lochi_session_block {
    lochi_tree_node node; /* key: its address */
    loch_session *session;
    loch_allocator *owner; /* that it goes back to, and in whose table it is */
    struct lochi_session_block *next, **link;
    size_t bytes;
    bool is_handled;  /* came by the session's allocator, among whose live blocks it counts */
    bool is_promoted; /* in no list any more */
} lochi_session_block;

struct loch_session {
    loch_allocator *allocator, *wrapped;
    lochi_session_block *blocks; /* this and the rest under the lock */
    lochi_session_block *failed; /* could not be freed by an end that is under way */
    size_t count, bytes, peak;
    size_t entered;
    bool is_ending, is_over;
};

#endif
