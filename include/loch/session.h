/* SPDX-License-Identifier: MIT */
/** @file session.h
 *  Sessions: all blocks that were allocated in a session are freed by one call, except blocks that were promoted.
 *
 *  A block belongs to a session in one of two ways. By handle: it is allocated from the session's allocator. By
 *  thread: the thread allocates it from the wrapped allocator between loch_session_enter and loch_session_leave.
 *  Blocks of a session may also be freed one by one, through either allocator.
 *
 *  Rules:
 *  - A block belongs to one session: that of the outermost allocator it was requested from. A wrapper around a
 *    session's allocator counts as that allocator. A request to a wrapper around the wrapped allocator counts as a
 *    request to the wrapped allocator. The end of the session frees a block through the allocator it was requested
 *    from, so wrappers see the free.
 *  - The handle has precedence: a block that a thread inside one session allocates from the allocator of another
 *    session belongs to the other session.
 *  - loch_allocator_realloc keeps a block in its session, or in none, whether it moves or not and whichever thread
 *    calls it. A growable block counts with its present size.
 *  - Memory that the library keeps for longer than a call belongs to no session: saved contents of sleeping pools,
 *    ranges of children.
 *  - Objects that outlive a session must not own its blocks. Release buffers and tensors made inside a session before
 *    its end, or promote their blocks. Empty a pool of buffers that was filled inside.
 *  - A session that is never ended loses nothing: its blocks are ordinary live blocks, which can be found, walked and
 *    freed.
 *  - Sessions of a direct allocator (loch_direct_free_deferred) are different: they delay frees. Both work together:
 *    the end of a session here defers its blocks there.
 */
#ifndef LOCH_SESSION_H
#define LOCH_SESSION_H

#include <loch/allocator.h>

LOCH_BEGIN_DECLS

/** A session. Any thread; enter and leave act on the calling thread. */
typedef struct loch_session loch_session;

/** Begins a session on an allocator and retains the allocator. On the allocator of another session, the new session
 *  wraps what that session wraps.
 *  @param name  for people; copied; at most 63 characters; NULL for the allocator's name
 *  @param out   owned by the caller; end it with loch_session_end. NULL on failure. */
LOCH_API LOCH_MUST_USE loch_status loch_session_begin(loch_allocator *allocator, const char *name, loch_session **out);

/** Returns the allocator of a session: a wrapper whose blocks belong to the session and that forwards everything
 *  else, including statistics. Borrowed; valid until the end of the session. A caller that retains it may free
 *  promoted blocks through it after the end; allocations then give E_INVALID. NULL returns NULL. */
LOCH_API loch_allocator *loch_session_get_allocator(const loch_session *session);

/** Enters a session on the calling thread: from now on, blocks that this thread allocates from the wrapped allocator
 *  belong to the session. Sessions nest; the one entered last counts. Threads outside any session pay nothing. A
 *  thread inside a session on a pool has no thread cache: each of its calls takes the pool's lock. A thread that ends
 *  leaves its sessions. E_HOST_MEMORY. E_INVALID: called from inside an allocation (a slot of an allocator, a
 *  pressure function), or the session is ending. */
LOCH_API LOCH_MUST_USE loch_status loch_session_enter(loch_session *session);

/** Leaves a session on the calling thread: undoes its last loch_session_enter. E_INVALID: the thread entered another
 *  session last, or none. */
LOCH_API LOCH_MUST_USE loch_status loch_session_leave(loch_session *session);

/** Takes a block out of a session: the block outlives the session. A block of the session's allocator is freed
 *  through it or through the wrapped allocator; any other block through the allocator it came from. E_FOREIGN: the
 *  session has no such block. */
LOCH_API LOCH_MUST_USE loch_status loch_session_promote(loch_session *session, void *address);

/** Figures of a session. */
typedef struct loch_session_stats {
    size_t size;       /**< set by the caller to sizeof(loch_session_stats) */
    size_t blocks;     /**< number of live blocks */
    size_t bytes;      /**< requested bytes in live blocks now */
    size_t peak_bytes; /**< most requested bytes in live blocks at a time */
} loch_session_stats;

/** Reads the figures of a session. Set `out->size` before the call. */
LOCH_API LOCH_MUST_USE loch_status loch_session_get_stats(loch_session *session, loch_session_stats *out);

/** Ends a session and frees all its blocks, ordered on `stream`; the caller has ordered `stream` after every use.
 *  With a NULL stream each block is freed on its own stream. Only LOCH_OK ends the session; after any failure it
 *  still exists and must be ended again.
 *
 *  E_BUSY, nothing changed: a thread is still inside the session, or inside this call. E_CORRUPT of a red-zone
 *  wrapper: all blocks were freed, and the session is empty. E_DOUBLE_FREE, E_FOREIGN: a block had been freed past
 *  the session; the session drops it. Any other failure: the blocks that could not be freed stay in the session.
 *  E_INVALID: the session is NULL.
 *  @param bytes  requested bytes that were freed; may be NULL; also set on failure */
LOCH_API LOCH_MUST_USE loch_status loch_session_end(loch_session *session, loch_stream *stream, size_t *bytes);
LOCH_DEFINE_CLEAR(session, (void)!loch_session_end(object, NULL, NULL))

LOCH_END_DECLS

#endif
