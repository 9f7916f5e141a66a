/* SPDX-License-Identifier: MIT */
/* Sessions as the dispatch sees them; state.h says how they work. What a call costs that has nothing to do with one: on the
 * long ways a look at a member of the allocator and at a variable of the thread, on the short ways nothing. */
#ifndef LOCHI_SESSION_H
#define LOCHI_SESSION_H

#include "base/hint.h"
#include "memory/allocator.h"
#include <loch/session.h>

/* What a thread is in, the last first. */
typedef struct lochi_session_frame {
    struct lochi_session_frame *next;
    loch_session *session; /* NULL: inside an allocation; what is allocated meanwhile is the allocator's own business */
} lochi_session_frame;

/* NULL for threads that have entered none. Initial-exec, as in base/thread_own.h. */
extern _Thread_local lochi_session_frame *lochi_session_top __attribute__((tls_model("initial-exec")));

/* A block of a session, in the table of the allocator that handed it out. */
typedef struct lochi_session_block lochi_session_block;

/* --- allocating --- */

/* Tells whether an allocation may have to do with a session. */
static inline bool lochi_session_concerns(const loch_allocator *allocator)
{
    return allocator->session || lochi_session_top;
}

/* An allocation that may belong to a session. */
typedef struct lochi_session_alloc {
    lochi_session_frame frame; /* on top meanwhile */
    loch_allocator *allocator;
    loch_session *session; /* NULL: to none */
    lochi_session_block *block;
} lochi_session_alloc;

/* Begins an allocation: finds the session, and allocates the note. E_HOST_MEMORY, E_INVALID for a session that has ended. */
loch_status lochi_session_begin_alloc(loch_allocator *allocator, lochi_session_alloc *alloc);

/* After it, whatever came of it; returns what became of both. */
loch_status lochi_session_end_alloc(lochi_session_alloc *alloc, loch_status status, size_t bytes, void **out);

/* Tells whether the calling thread is in a session on this allocator itself. */
bool lochi_session_is_in(const loch_allocator *allocator);

/* Tells whether this is a session's own allocator. Its live blocks are those that are noted as its own. */
bool lochi_session_is_own(const loch_allocator *allocator);

/* Hides the sessions of the thread from an allocation that takes the place of a block: it belongs to none by itself. */
static inline void lochi_session_hush(lochi_session_frame *frame)
{
    *frame = (lochi_session_frame){lochi_session_top, NULL};
    lochi_session_top = frame;
}

/* Undoes lochi_session_hush. */
static inline void lochi_session_unhush(const lochi_session_frame *frame)
{
    lochi_session_top = frame->next;
}

/* --- freeing --- */

/* Takes a note out, of an allocator that has some. For lochi_session_take. */
lochi_session_block *lochi_session_take_any(loch_allocator *allocator, const void *address);

/* Takes the note on a block out of the allocator's table, before the block is freed: so nobody else can have its address
 * while the note is there, and of a free and the end of the session one has the block. NULL when it is in no session. Who
 * frees a block of a session sees the count that includes it. */
static inline lochi_session_block *lochi_session_take(loch_allocator *allocator, const void *address)
{
    if (LOCHI_LIKELY(!atomic_load_explicit(&allocator->session_count, memory_order_relaxed))) return NULL;
    return lochi_session_take_any(allocator, address);
}

/* Tells whether a block whose note was taken out has gone: of two that free it at a time, one has the note and the other may
 * have had the block. */
static inline bool lochi_session_is_gone(loch_status status)
{
    return lochi_is_freed(status) || status == LOCH_E_DOUBLE_FREE || status == LOCH_E_FOREIGN ||
           status == LOCH_E_INTERIOR;
}

/* After it: the block has gone, or the note goes back. This may end the session's allocator, and with it the one that the
 * block came from, unless the caller holds a reference. */
void lochi_session_settle(lochi_session_block *block, bool is_gone);

/* For a block that moves to another address of its allocator, which may be a session's own. */
lochi_session_block *lochi_session_take_moving(loch_allocator *allocator, const void *address);
void lochi_session_settle_moved(lochi_session_block *block, void *address, size_t bytes);

/* Has a note follow a block that its pool has moved. The pool's lock is held. */
void lochi_session_follow(loch_allocator *allocator, const void *from, void *to);

/* Notes that a block has changed its size in place. */
void lochi_session_note_size(loch_allocator *allocator, const void *address, size_t bytes);

#endif
