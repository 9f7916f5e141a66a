/* SPDX-License-Identifier: MIT */
/** @file session.h
 *  Sessions: everything that was allocated in one is freed by one call, but for what was promoted out of it.
 *
 *  What belongs to a session is said in one of two ways: by handle, what is allocated from the session's allocator; by thread,
 *  what a thread allocates from the wrapped allocator between enter and leave. Blocks of a session may be freed one by one
 *  before, like all others, through either allocator.
 *
 *  What holds:
 *  - A block belongs to one session, that of the outermost allocator which it was asked of: a wrapper around a session's allocator
 *    counts as that allocator, and what a thread asks of wrappers around the wrapped allocator counts as asked of that. In the end
 *    it goes back to the allocator that it was asked of, so wrappers hear of it; its address is the one that was handed out there.
 *  - The handle comes before the thread: what a thread in one session allocates from another session's allocator is the other's.
 *  - loch_allocator_realloc leaves a block where it is: in its session, whether it moves or not and whoever calls, or in none.
 *    A growable block counts with the bytes that it holds now.
 *  - What the library keeps for longer than a call is in no session: saved contents of sleeping pools, ranges of children.
 *  - What lives longer than a session must not take its blocks from it unseen: buffers and tensors made inside are to be released
 *    before the end or their blocks promoted, and a pool of buffers that is filled inside is to be emptied before.
 *  - A session that is never ended leaks nothing of the allocator's: its blocks are ordinary live blocks, which can be found,
 *    walked and freed.
 *  - Sessions of a direct allocator (loch_direct_free_deferred) are another thing: those defer what was freed, these free what
 *    was not. They go together: the end of a session here defers its blocks there.
 */
#ifndef LOCH_SESSION_H
#define LOCH_SESSION_H

#include <loch/allocator.h>

LOCH_BEGIN_DECLS

/** A session. Safe in any thread; enter and leave are for the calling one. */
typedef struct loch_session loch_session;

/** Begins a session on an allocator, which it retains. One on another session's allocator is one on what that wraps. `name` (may
 *  be NULL: the allocator's) is for people; copied; at most 63 characters.
 *  @param out  the caller's, ended by loch_session_end; NULL on failure */
LOCH_API LOCH_MUST_USE loch_status loch_session_begin(loch_allocator *allocator, const char *name, loch_session **out);

/** The session's allocator: a wrapper whose blocks belong to the session, and which forwards everything, figures too. Borrowed, valid
 *  until the end. Who retains it may free promoted blocks through it later; it hands out nothing more: E_INVALID. */
LOCH_API loch_allocator *loch_session_get_allocator(const loch_session *session);

/** From now on what the calling thread allocates from the wrapped allocator belongs to the session. Sessions nest: the one entered
 *  last counts. Costs threads that have entered none nothing; a thread that is in a session on a pool keeps nothing of it for itself,
 *  so each of its calls takes the pool's lock. A thread that ends is taken out. E_HOST_MEMORY; E_INVALID from inside an
 *  allocation (in a slot of an allocator, a pressure function). */
LOCH_API LOCH_MUST_USE loch_status loch_session_enter(loch_session *session);

/** Undoes the calling thread's last enter. E_INVALID when that was of another session, or there was none. */
LOCH_API LOCH_MUST_USE loch_status loch_session_leave(loch_session *session);

/** Takes a block out of the session: it lives on after the end. E_FOREIGN when it is none of the session's. One that came from the
 *  session's allocator may go back through that or the wrapped one, any other through the allocator that it came from. */
LOCH_API LOCH_MUST_USE loch_status loch_session_promote(loch_session *session, void *address);

/** What a session holds now. */
typedef struct loch_session_stats {
    size_t size;       /**< set by the caller to sizeof(loch_session_stats) */
    size_t blocks;     /**< live */
    size_t bytes;      /**< requested, in those, as of now */
    size_t peak_bytes; /**< the most at a time */
} loch_session_stats;

/** Reads them. */
LOCH_API LOCH_MUST_USE loch_status loch_session_get_stats(loch_session *session, loch_session_stats *out);

/** Ends a session: frees all its blocks in the order of `stream` (which the caller has ordered behind every use), or with NULL each
 *  in the order of its own stream. E_BUSY, and nothing changes, while a thread is still in it, or in this call. On any other
 *  failure the blocks that could not be freed stay in the session, which is still there: LOCH_OK alone ends it. E_CORRUPT of a guard
 *  means that all were freed, and that the session is there, empty, to be ended again. A block that turns out to be gone
 *  already (E_DOUBLE_FREE, E_FOREIGN: freed behind its allocator's back) is forgotten.
 *  @param bytes  requested bytes that were freed; may be NULL; set on failure too */
LOCH_API LOCH_MUST_USE loch_status loch_session_end(loch_session *session, loch_stream *stream, size_t *bytes);

LOCH_END_DECLS

#endif
