/* SPDX-License-Identifier: MIT */
/** @file moving.h
 *  Memory that moves: compaction of pools, and forbidding it for a while.
 *
 *  Blocks that were handed out as raw addresses never move. A buffer made with LOCH_ALLOC_MOVABLE (buffer.h) may be moved by its
 *  pool while nobody has it pinned: by loch_pool_compact, and as the last step before an allocation fails. Its address is had by
 *  loch_buffer_pin, and is good until loch_buffer_unpin; both take a stream, so that a move comes behind the work that was queued
 *  before the unpin, and before all that is queued after the next pin. Nothing waits on the host for that.
 */
#ifndef LOCH_MOVING_H
#define LOCH_MOVING_H

#include <loch/pool.h>

LOCH_BEGIN_DECLS

/** What a compaction is for; zero means default. */
typedef struct loch_compact_options {
    size_t size;             /**< sizeof(loch_compact_options) */
    size_t contiguous_bytes; /**< until a block of this size could be had; 0: as much as can be joined */
    size_t budget_bytes;     /**< moves at most that much; 0 for no bound */
    loch_stream *stream;     /**< that copies; NULL: the default stream */
} loch_compact_options;

/** One move. */
typedef struct loch_move {
    void *from;      /**< where the block was */
    void *to;        /**< where it is now */
    size_t bytes;    /**< requested */
    loch_tag tag;    /**< of the block */
    uint64_t buffer; /**< loch_buffer_get_id of the buffer */
} loch_move;

/** What a compaction came to, or would come to. */
typedef struct loch_compact_report {
    size_t size;        /**< set by the caller to sizeof(loch_compact_report) */
    size_t moves;       /**< blocks moved */
    size_t moved_bytes; /**< in them, as they lie in the pool: what the budget counts, too */
    size_t
        joined_bytes; /**< free memory that is in whole handles now, or in one piece, and can serve one block; 0 on failure */
} loch_compact_report;

/** Compacts a pool: plans first, moves the fewest bytes that reach the goal. Ordered on streams; does not wait for the copies. A
 *  failure in the middle leaves every block readable, moved or not. E_FRAGMENTED when `contiguous_bytes` cannot be reached: nothing moves
 *  then, nor when such a block could be had before. Blocks that a capture used which was not released, or whose streams are captured now,
 *  stay where they are. E_MOVING_FORBIDDEN; E_BUSY on a stream that is captured, and while the pool sleeps. `report` may be NULL. Any
 *  thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_compact(loch_allocator *pool, const loch_compact_options *options,
                                                     loch_compact_report *report);

/** Called with each move of a plan, or after each move, under the pool's lock: it must not call Loch. */
typedef void loch_move_function(loch_allocator *pool, const loch_move *move, void *user);

/** The same without moving, also while it is forbidden: shows the moves that a compaction would make now. E_BUSY as there. `visitor`
 *  may be NULL. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_plan_compact(loch_allocator *pool, const loch_compact_options *options,
                                                          loch_move_function *visitor, void *user,
                                                          loch_compact_report *report);

/** Sets a function that hears of every move after its copy was queued, under the pool's lock: an engine mends its tables of addresses
 *  and graphs there. NULL removes it. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_set_move_hook(loch_allocator *pool, loch_move_function *hook, void *user);

/** Forbids moving in a pool until loch_pool_allow_moving was called as often. An allocation that would need a move, because nobody else
 *  gives memory back either, fails with E_MOVING_FORBIDDEN, and so does an explicit compaction. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_forbid_moving(loch_allocator *pool);

/** Undoes one loch_pool_forbid_moving. E_INVALID when moving is not forbidden. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_allow_moving(loch_allocator *pool);

/** @name Freezing: long-lived blocks, as weights, are packed together and taken out of search and motion */
/** @{ */

/** Whether frozen memory may be written. */
typedef enum loch_freeze_writes {
    LOCH_FREEZE_WRITABLE, /**< as before */
    /** Writes of the host are caught by the system (SIGSEGV), in all pages that hold frozen memory alone; on devices whose memory
     *  the host does not write nothing is protected */
    LOCH_FREEZE_PROTECTED
} loch_freeze_writes;

/** How memory is frozen; zero means default, NULL all defaults. */
typedef struct loch_freeze_options {
    size_t size;               /**< sizeof(loch_freeze_options) */
    loch_tag tag;              /**< only live blocks of this tag; 0: all of the pool's */
    loch_freeze_writes writes; /**< whether they may be written */
    loch_stream *stream;       /**< that packs them; NULL: the default stream */
} loch_freeze_options;

/** What a freeze came to. */
typedef struct loch_freeze_report {
    size_t size;            /**< set by the caller to sizeof(loch_freeze_report) */
    size_t blocks;          /**< frozen by this call */
    size_t bytes;           /**< in them, requested */
    size_t moves;           /**< blocks that moved to be together */
    size_t moved_bytes;     /**< in them */
    size_t protected_bytes; /**< of all pages of the pool that are protected now */
} loch_freeze_report;

/** Freezes live blocks: those that may move are put together first, then none of them moves any more, and no other goes where they are.
 *  They are used, found and freed like any other; a free gives the space back at once. May be repeated: what lives by then is frozen,
 *  too. Moves are ordered as those of a compaction; with LOCH_FREEZE_PROTECTED the call waits for the streams. Small blocks (8 KiB
 *  and less) are put together by tag, in memory that takes no others, and counted like any; they are not protected. Growable blocks stay
 *  where they are. While moving is forbidden nothing is put together. E_BUSY
 *  while anything of the pool sleeps, or its stream is captured. Any thread. */
LOCH_API LOCH_MUST_USE loch_status loch_pool_freeze(loch_allocator *pool, const loch_freeze_options *options,
                                                    loch_freeze_report *report);

/** Undoes it for the blocks of a tag (0: all): they may be written and move again. Any thread.
 *  @param bytes  in them, requested; may be NULL */
LOCH_API LOCH_MUST_USE loch_status loch_pool_unfreeze(loch_allocator *pool, loch_tag tag, size_t *bytes);

/** @} */

LOCH_END_DECLS

#endif
