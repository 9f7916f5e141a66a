/* SPDX-License-Identifier: MIT */
/* Sessions, as the paths of allocation and free use them. state.h says how sessions work. Cost for a call without a
 * session: on the slow paths, reading a member of the allocator and a variable of the thread; on the fast paths,
 * nothing. */
#ifndef LOCHI_SESSION_H
#define LOCHI_SESSION_H

#include "kit/hint.h"
#include "memory/allocator.h"
#include <loch/session.h>

/* A session that the thread has entered. The frames of a thread form a stack. */
typedef struct lochi_session_frame {
    struct lochi_session_frame *next;
    loch_session *session; /* NULL: inside an allocation, so that nested allocations join no session */
} lochi_session_frame;

/* The top frame of the thread; NULL if it entered no session. Initial-exec, as in base/thread_own.h. */
extern _Thread_local lochi_session_frame *lochi_session_top __attribute__((tls_model("initial-exec")));

/* A note: a block of a session, in the table of the allocator that handed it out. */
typedef struct lochi_session_block lochi_session_block;

/* --- allocating --- */

/* Returns whether an allocation may belong to a session. */
static inline bool lochi_session_concerns(const loch_allocator *allocator)
{
    return allocator->session || lochi_session_top;
}

/* An allocation that may belong to a session. */
typedef struct lochi_session_alloc {
    lochi_session_frame frame; /* top frame during the allocation */
    loch_allocator *allocator;
    loch_session *session; /* NULL: no session */
    lochi_session_block *block;
} lochi_session_alloc;

/* Begins an allocation: finds the session and allocates the note. E_HOST_MEMORY; E_INVALID: the session has ended. */
loch_status lochi_session_begin_alloc(loch_allocator *allocator, lochi_session_alloc *alloc);

/* Ends an allocation that lochi_session_begin_alloc began. `status` is the result of the allocation. Returns the
 * result of both: on success the block is noted, else it is freed. */
loch_status lochi_session_end_alloc(lochi_session_alloc *alloc, loch_status status, size_t bytes, void **out);

/* Returns whether the calling thread is in a session on exactly this allocator. */
bool lochi_session_is_in(const loch_allocator *allocator);

/* Returns whether this is the allocator of a session. Its live blocks are those with a note that says so. */
bool lochi_session_is_own(const loch_allocator *allocator);

/* Hides the thread's sessions during an allocation that replaces another block. The new block joins no session by
 * itself. */
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

/* Takes out a note of an allocator that has notes. Helper of lochi_session_take. */
lochi_session_block *lochi_session_take_any(loch_allocator *allocator, const void *address);

/* Takes the note on a block out of the allocator's table; NULL if the block is in no session. Called before the
 * block is freed. So no other block can have the address while the note is in the table, and only one of a free and
 * the end of the session gets the block. A thread that frees a block of a session sees the count that includes this
 * block. */
static inline lochi_session_block *lochi_session_take(loch_allocator *allocator, const void *address)
{
    if (LOCHI_LIKELY(!atomic_load_explicit(&allocator->session_count, memory_order_relaxed))) return NULL;
    return lochi_session_take_any(allocator, address);
}

/* Returns whether a block whose note was taken out is gone. If two threads free it at once, one has the note and the
 * other may have freed the block. */
static inline bool lochi_session_is_gone(loch_status status)
{
    return lochi_is_freed(status) || status == LOCH_E_DOUBLE_FREE || status == LOCH_E_FOREIGN ||
           status == LOCH_E_INTERIOR;
}

/* Ends lochi_session_take: frees the note if the block is gone, else puts the note back. May destroy the session's
 * allocator, and with it the allocator of the block, unless the caller holds a reference. */
void lochi_session_settle(lochi_session_block *block, bool is_gone);

/* Take and settle the note of a block that moves to another address of its allocator. The allocator may be a
 * session's own. */
lochi_session_block *lochi_session_take_moving(loch_allocator *allocator, const void *address);
void lochi_session_settle_moved(lochi_session_block *block, void *address, size_t bytes);

/* Updates the address in a note after a pool has moved the block. The pool's lock is held. */
void lochi_session_follow(loch_allocator *allocator, const void *from, void *to);

/* Updates the size in a note after a resize in place. */
void lochi_session_note_size(loch_allocator *allocator, const void *address, size_t bytes);

#endif
