/* SPDX-License-Identifier: MIT */
/** @file moving.h
 *  Moving memory: compaction of pools, movable buffers, and frozen memory.
 *
 *  A block that was handed out as an address never moves. A buffer created with LOCH_ALLOC_MOVABLE (buffer.h) may be
 *  moved by its pool while it is not pinned: by loch_pool_compact, and as the last step before an allocation fails.
 *  Only a pool itself, not a wrapper around one, has movable buffers (E_UNSUPPORTED). loch_buffer_pin returns the
 *  address, which is valid until loch_buffer_unpin. Both take a stream: a move is ordered after the work queued
 *  before the unpin, and before the work queued after the next pin. Nothing waits on the host for a move.
 */
#ifndef LOCH_MOVING_H
#define LOCH_MOVING_H

#include <loch/pool.h>

LOCH_BEGIN_DECLS

/** @name Compaction */
/** @{ */

/** Options of a compaction. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_compact_options {
    size_t size;             /**< sizeof(loch_compact_options) */
    size_t contiguous_bytes; /**< goal: one free block of this size in bytes; 0: join as much as possible */
    size_t budget_bytes;     /**< most bytes to move; 0 for no limit */
    loch_stream *stream;     /**< stream of the copies; NULL for the default stream */
} loch_compact_options;

/** Result of a compaction or of a plan. */
typedef struct loch_compact_report {
    size_t size;        /**< set by the caller to sizeof(loch_compact_report) */
    size_t moves;       /**< number of blocks moved */
    size_t moved_bytes; /**< bytes moved, including rounding; the budget counts the same bytes */
    /** Bytes of free memory that are now in whole handles or in one piece and can serve one block; 0 on failure. */
    size_t joined_bytes;
} loch_compact_report;

/** Compacts a pool: makes a plan first, then moves the fewest bytes that reach the goal. The copies are ordered on
 *  streams; the call does not wait for them. If a failure occurs in the middle, every block is still readable, moved
 *  or not. Blocks used by a capture that was not released, or by a stream that is captured now, do not move. Any
 *  thread.
 *
 *  E_FRAGMENTED: `contiguous_bytes` cannot be reached; nothing moves. Nothing moves either if such a block is free
 *  already. E_MOVING_FORBIDDEN: moving is forbidden. E_BUSY: the stream is captured, or the pool is asleep.
 *  E_INVALID: not a pool.
 *  @param report  may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_pool_compact(loch_allocator *pool, const loch_compact_options *options,
                                                     loch_compact_report *report);

/** One move of a block. */
typedef struct loch_move {
    void *from;      /**< old address */
    void *to;        /**< new address */
    size_t bytes;    /**< requested size in bytes */
    loch_tag tag;    /**< tag of the block */
    uint64_t buffer; /**< id of the buffer (loch_buffer_get_id) */
} loch_move;

/** Receives one move: of a plan, or a move whose copy was queued. Called with the pool's lock held: it must not call
 *  Loch. */
typedef void loch_move_function(loch_allocator *pool, const loch_move *move, void *user);

/** Plans a compaction without moving anything: reports the moves that loch_pool_compact would make now. Works while
 *  moving is forbidden. E_FRAGMENTED: `contiguous_bytes` cannot be reached. E_BUSY: the stream is captured, or the
 *  pool is asleep. E_INVALID: not a pool. Any thread.
 *  @param visitor  called with each planned move; may be NULL
 *  @param report   may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_pool_plan_compact(loch_allocator *pool, const loch_compact_options *options,
                                                          loch_move_function *visitor, void *user,
                                                          loch_compact_report *report);

/** Sets a function that is called for every move of a pool, after the copy was queued and with the pool's lock held.
 *  An engine updates its tables of addresses and its graphs there. NULL removes the function. `user` is borrowed
 *  until then. E_INVALID: not a pool. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_set_move_hook(loch_allocator *pool, loch_move_function *hook, void *user);

/** Forbids moving in a pool. Calls are counted: moving is allowed again after as many calls of
 *  loch_pool_allow_moving. While moving is forbidden, an allocation that only a move can serve fails with
 *  E_MOVING_FORBIDDEN, and so does loch_pool_compact. E_INVALID: not a pool. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_forbid_moving(loch_allocator *pool);

/** Undoes one loch_pool_forbid_moving. E_INVALID: moving is not forbidden, or not a pool. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_allow_moving(loch_allocator *pool);

/** @} */
/** @name Freezing
 *  Long-lived blocks, such as weights, are packed together. Frozen blocks do not move, and no other block is placed
 *  among them. */
/** @{ */

/** Whether frozen memory may be written. */
typedef enum loch_freeze_writes {
    LOCH_FREEZE_WRITABLE, /**< may be written as before */
    /** Writes by the host raise SIGSEGV in all pages that hold frozen memory only; nothing is protected on devices
     *  whose memory the host cannot write. */
    LOCH_FREEZE_PROTECTED
} loch_freeze_writes;

/** Options of loch_pool_freeze. Zero means default; a NULL pointer means all defaults. */
typedef struct loch_freeze_options {
    size_t size;               /**< sizeof(loch_freeze_options) */
    loch_tag tag;              /**< only live blocks with this tag; 0 for all blocks of the pool */
    loch_freeze_writes writes; /**< whether frozen memory may be written */
    loch_stream *stream;       /**< stream of the copies that pack the blocks; NULL for the default stream */
} loch_freeze_options;

/** Result of a freeze. */
typedef struct loch_freeze_report {
    size_t size;            /**< set by the caller to sizeof(loch_freeze_report) */
    size_t blocks;          /**< number of blocks frozen by this call */
    size_t bytes;           /**< requested bytes in the blocks frozen by this call */
    size_t moves;           /**< number of blocks moved to be packed */
    size_t moved_bytes;     /**< bytes in the blocks moved to be packed */
    size_t protected_bytes; /**< bytes in all protected pages of the pool now */
} loch_freeze_report;

/** Freezes live blocks: movable ones are packed together first; then none of them moves, and no other block is placed
 *  among them. Frozen blocks are used, found and freed as before; a free gives the space back at once. May be called
 *  again: blocks that are live then are frozen too. Moves are ordered on streams as in loch_pool_compact; with
 *  LOCH_FREEZE_PROTECTED the call waits on the host for the streams. Blocks of 8 KiB or less are packed by tag in
 *  memory for them alone, are counted, and are not protected. Growable blocks stay where they are. While moving is
 *  forbidden, nothing is packed. On failure nothing stays frozen by this call. E_BUSY: something in the pool sleeps,
 *  or the stream is captured. E_INVALID: not a pool. Any thread.
 *  @param report  may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_pool_freeze(loch_allocator *pool, const loch_freeze_options *options,
                                                    loch_freeze_report *report);

/** Unfreezes the blocks with a tag (0: all blocks): they may be written and moved again. E_INVALID: not a pool. Any
 *  thread.
 *  @param bytes  requested bytes in the blocks; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_pool_unfreeze(loch_allocator *pool, loch_tag tag, size_t *bytes);

/** @} */

LOCH_END_DECLS

#endif
