/* SPDX-License-Identifier: MIT */
/* Movable large blocks: owners, pins, and one move.
 *
 * A move is a copy on the lane that compacts. Before the copy, that lane waits on the device for the block's own
 * stream, for all streams that used the block, and for the last user of the target. After the copy, the target
 * counts as used by that lane. So it is not reused before the copy has ended, even if the block is freed, and the
 * next pin waits for the copy. The old place is free in the order of that lane.
 *
 * A slide is a move into the free memory right before the block, which may be shorter than the block. Then the
 * copies overlap. If the driver refuses one of them half way, the contents lie in two places: the block is torn. It
 * keeps both places until the next pin or the next compaction has copied the rest. */
#include "memory/pool/moving/move.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "device/copy.h"
#include "memory/live/live.h"
#include "memory/movable.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/moving/move_small.h"
#include "memory/pool/state/state.h"
#include "memory/pool/pool.h"
#include "memory/pool/limits/limits.h"
#include "memory/recorder/recorder.h"
#include "memory/session/session.h"

/* Finds the pool of an allocator that is itself a pool, not a wrapper. */
static loch_status move_find_pool(loch_allocator *allocator, lochi_pool **out)
{
    *out = allocator ? allocator->pool : NULL;
    if (*out) return LOCH_OK;
    return LOCH_FAIL(UNSUPPORTED, "only a pool itself has movable memory, not a wrapper around it");
}

static pool_block *move_find_block(const lochi_pool *pool, const void *address)
{
    return lochi_pool_page_block(lochi_pool_find_page(pool, (uintptr_t)address));
}

loch_status lochi_movable_open(loch_allocator *allocator, void *address, size_t alignment, lochi_movable *movable)
{
    lochi_pool *pool;
    LOCH_TRY_RETURN(move_find_pool(allocator, &pool));
    *movable = (lochi_movable){.address = address, .buffer = movable->buffer};
    lochi_lock_take(&pool->lock);
    pool_block *block = move_find_block(pool, address); /* NULL for a small block */
    pool_slab *slab = lochi_pool_page_slab(lochi_pool_find_page(pool, (uintptr_t)address));
    if (slab) lochi_pool_small_own(pool, slab, movable);
    if (block && !block->is_captured && !block->is_piece && alignment <= POOL_UNIT) {
        block->owner = movable;
        lochi_pool_set_state(block, POOL_SPECIAL); /* a free takes the slow path, which removes the owner */
        pool->moving.bytes += block->bytes;
    }
    lochi_lock_drop(&pool->lock);
    return LOCH_OK;
}

/* Frees memory that does not count as used, in the present order of its lane. */
static void move_free(lochi_pool *pool, pool_block *block)
{
    if (lochi_pool_wipe_block(pool, block))
        lochi_pool_make_free(pool, block, block->lane->epoch);
    else
        pool->used += block->bytes;
}

/* Frees the memory behind a torn block that its contents came from. */
static void move_drop_tail(lochi_pool *pool, pool_block *block)
{
    pool_block *tail = block->behind;
    block->owner->torn_from = NULL;
    pool->moving.torn_count--;
    pool->used -= tail->bytes;
    pool->waiting_bytes -= tail->bytes;
    lochi_pool_hide(pool, tail->start, tail->bytes);
    move_free(pool, tail);
}

void lochi_pool_disown(lochi_pool *pool, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    if (block->owner->torn_from) move_drop_tail(pool, block);
    pool->moving.bytes -= block->bytes;
    block->owner = NULL;
}

void lochi_pool_hold_still(lochi_pool *pool)
{
    lochi_lock_take(&pool->lock);
}

void lochi_pool_make_stay(lochi_pool *pool, const void *address)
{
    lochi_lock_assert_held(&pool->lock);
    pool_block *block = move_find_block(pool, address);
    pool_slab *slab = lochi_pool_page_slab(lochi_pool_find_page(pool, (uintptr_t)address));
    const pool_word *word = slab ? lochi_pool_slab_word(slab, (uintptr_t)address) : NULL;
    if (block && block->owner) lochi_pool_disown(pool, block);
    if (word) lochi_pool_small_disown(pool, slab, word);
}

void lochi_pool_let_move(lochi_pool *pool)
{
    lochi_lock_drop(&pool->lock);
}

static pool_recorded_uses *move_find_uses(const lochi_pool *pool, uintptr_t address)
{
    lochi_tree_node *node = lochi_tree_at_or_below(&pool->recorded_uses, address);
    return node && node->key == address ? LOCHI_CONTAINER(node, pool_recorded_uses, node) : NULL;
}

/* Tells whether a move can be ordered after all streams that used the block. */
static bool move_is_in_reach(const lochi_pool *pool, const pool_block *block)
{
    if (!pool->moving.lanes_out_of_reach) return true;
    if (block->lane->is_out_of_reach) return false;
    const pool_recorded_uses *recorded = block->has_uses ? move_find_uses(pool, block->start) : NULL;
    for (const pool_use *use = recorded ? recorded->uses : NULL; use; use = use->next)
        if (use->lane->is_out_of_reach) return false;
    return true;
}

bool lochi_pool_is_movable(const lochi_pool *pool, const pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    return block->owner && !block->frozen && !block->owner->torn_from && !lochi_movable_is_pinned(block->owner) &&
           !lochi_pool_sleeps_at(pool, block->start, block->bytes) && move_is_in_reach(pool, block);
}

/* --- one move --- */

/* Orders a lane after the last move of a block. The host waits if the device cannot. */
static loch_status move_wait(lochi_pool *pool, lochi_movable *movable, pool_lane *lane)
{
    pool_lane *mover = movable->lane;
    if (!mover) return LOCH_OK;
    lochi_pool_poll(pool, mover);
    if (lochi_pool_has_passed(mover, movable->epoch)) {
        movable->lane = NULL;
        return LOCH_OK;
    }
    const loch_error saved = lochi_error_save();
    if (lochi_pool_wait_on_device(pool, lane, mover, movable->epoch) == LOCH_OK) return LOCH_OK;
    lochi_error_restore(&saved);
    return lochi_pool_wait_for_epoch(pool, mover, movable->epoch);
}

/* Orders the lane after all streams that used the block, and after the last user of the target. */
static loch_status move_order(lochi_pool *pool, const pool_block *block, const pool_block *target, pool_lane *lane)
{
    LOCH_TRY_RETURN(lochi_pool_follow(pool, lane, block->lane));
    LOCH_TRY_RETURN(lochi_pool_wait_on_device(pool, lane, target->lane, lochi_pool_epoch(target)));
    const pool_recorded_uses *recorded = block->has_uses ? move_find_uses(pool, block->start) : NULL;
    for (const pool_use *use = recorded ? recorded->uses : NULL; use; use = use->next)
        LOCH_TRY_RETURN(lochi_pool_follow(pool, lane, use->lane));
    return LOCH_OK;
}

/* Gives the block's identity to the target, and frees the block's old place. */
static void move_commit(lochi_pool *pool, pool_block *block, pool_block *target, pool_lane *lane, bool is_used)
{
    lochi_movable *movable = block->owner;
    lochi_pool_set_state(target, POOL_SPECIAL);
    target->lane = block->lane;
    lochi_pool_set_requested(target, lochi_pool_requested(block));
    target->tag = block->tag;
    lochi_pool_set_id(target, atomic_load_explicit(&block->id, memory_order_relaxed));
    target->owner = movable;
    target->has_uses = is_used;
    lochi_pool_enter_page(pool, target->start, lochi_pool_page_of(target));
    lochi_pool_enter_page(pool, block->start, POOL_MARK(block->start));
    lochi_session_follow(pool->allocator, movable->address, (void *)target->start);
    lochi_live_move(pool->allocator, movable->address, (void *)target->start);
    movable->address = (void *)target->start;
    movable->generation++;
    movable->lane = is_used ? lane : NULL;
    movable->epoch = lane->epoch;
    if (block->has_uses) lochi_pool_forget_uses(pool, block->start);
    if (pool->policy.checker) lochi_poison_move(pool, block->start, target->start, lochi_pool_requested(target));
    lochi_pool_hide(pool, block->start, block->bytes);
    block->owner = NULL;
    block->has_uses = block->is_arena = false;
    block->tag = 0;
    block->lane = lane;
    move_free(pool, block);
    pool->moving.moves++;
    pool->moving.moved_bytes += lochi_pool_requested(target);
}

static void move_tell(lochi_pool *pool, const void *from, const pool_block *target)
{
    const uint32_t recorded = lochi_recorder_of(pool->allocator);
    if (recorded) lochi_recorder_note_move(recorded, from, (void *)target->start);
    if (!pool->moving.hook) return;
    LOCHI_NOT_CANCELLED;
    const loch_move move = {(void *)(uintptr_t)from, (void *)target->start, lochi_pool_requested(target), target->tag,
                            target->owner->buffer};
    pool->moving.hook(pool->allocator, &move, pool->moving.hook_user);
}

loch_status lochi_pool_move(lochi_pool *pool, pool_block *block, pool_block *target, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    void *from = (void *)block->start, *to = (void *)target->start;
    const bool is_used = lane->done != UINT64_MAX; /* the copy may still run after the call */
    loch_status status = lochi_pool_prepare_pages(pool, target->start, 1);
    if (status == LOCH_OK) status = move_order(pool, block, target, lane);
    if (status == LOCH_OK && is_used) status = lochi_pool_note_use(pool, target->start, lane);
    if (status == LOCH_OK) {
        lochi_pool_show(pool, target->start, lochi_pool_requested(block));
        status = lochi_copy_own(lane->stream, to, from, lochi_pool_requested(block));
        if (status != LOCH_OK && is_used) lochi_pool_forget_uses(pool, target->start);
    }
    if (status != LOCH_OK) {
        /* A queued copy may still write there: the memory is free in the order of the lane that queued it. */
        lochi_pool_hide(pool, target->start, target->bytes);
        target->lane = lane;
        move_free(pool, target);
        return status;
    }
    move_commit(pool, block, target, lane, is_used);
    move_tell(pool, from, target);
    return LOCH_OK;
}

/* --- slides --- */

/* Copies the rest of a block's contents from behind it. The lane is ordered after all earlier work. */
static loch_status move_go_on(pool_block *block, pool_lane *lane)
{
    lochi_movable *movable = block->owner;
    const loch_status status = lochi_copy_onward(lane->stream, movable->address, movable->torn_from,
                                                 lochi_pool_requested(block), &movable->torn_done);
    return movable->torn_done == lochi_pool_requested(block) ? LOCH_OK : status;
}

loch_status lochi_pool_mend(lochi_pool *pool, pool_block *block, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_movable *movable = block->owner;
    const bool is_used = lane->done != UINT64_MAX;
    if (lane->capture) /* the copy would run only when the graph is launched */
        return LOCH_FAIL(BUSY,
                         "the block at %p was left in two places by a move that failed: it cannot be "
                         "completed on a stream that is captured",
                         (void *)block->start);
    LOCH_TRY_RETURN(move_wait(pool, movable, lane));
    if (is_used) LOCH_TRY_RETURN(lochi_pool_note_use(pool, block->start, lane));
    block->has_uses |= is_used;
    block->behind->lane = lane;
    movable->lane = is_used ? lane : NULL;
    movable->epoch = lane->epoch;
    LOCH_TRY_RETURN(move_go_on(block, lane));
    move_drop_tail(pool, block);
    lochi_pool_mark(pool, lane); /* the event can be waited for even if the stream is captured next */
    return LOCH_OK;
}

loch_status lochi_pool_mend_all(lochi_pool *pool, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    loch_status status = LOCH_OK;
    for (pool_block *block = NULL; pool->moving.torn_count && (block = lochi_pool_next_block(pool, block));) {
        if (!block->owner || !block->owner->torn_from) continue;
        const loch_status mended = lochi_pool_mend(pool, block, lane);
        if (status == LOCH_OK) status = mended;
    }
    return status;
}

/* Swaps a block with the free memory before it. */
static void move_swap(lochi_pool *pool, pool_block *hole, pool_block *block)
{
    pool_block *before = hole->before, *behind = block->behind;
    block->start = hole->start;
    hole->start = block->start + block->bytes;
    block->before = before;
    block->behind = hole;
    hole->before = block;
    hole->behind = behind;
    if (behind) behind->before = hole;
    if (before)
        before->behind = block;
    else if (pool->policy.is_virtual)
        pool->first = block;
    else
        lochi_pool_find_cell(pool, block->start)->handle->first = block;
}

/* Puts the block at its new address and the free memory behind it, in all tables. */
static void move_commit_slide(lochi_pool *pool, pool_block *block, pool_lane *lane, bool is_used, size_t done)
{
    lochi_movable *movable = block->owner;
    pool_block *tail = block->before;
    void *from = movable->address;
    lochi_pool_unbin(pool, tail);
    if (block->has_uses) lochi_pool_forget_uses(pool, block->start);
    lochi_pool_enter_page(pool, block->start, POOL_MARK(block->start));
    move_swap(pool, tail, block);
    lochi_pool_enter_page(pool, block->start, lochi_pool_page_of(block));
    block->has_uses = is_used;
    movable->address = (void *)block->start;
    movable->generation++;
    movable->lane = is_used ? lane : NULL;
    movable->epoch = lane->epoch;
    lochi_session_follow(pool->allocator, from, movable->address);
    lochi_live_move(pool->allocator, from, movable->address);
    tail->is_arena = false;
    movable->torn_from = from;
    pool->moving.torn_count++;
    movable->torn_done = done;
    lochi_pool_set_state(tail, POOL_WAITING);
    pool->used += tail->bytes;
    pool->waiting_bytes += tail->bytes;
    if (pool->policy.checker) lochi_poison_move(pool, (uintptr_t)from, block->start, lochi_pool_requested(block));
    if (done == lochi_pool_requested(block))
        move_drop_tail(pool, block);
    else
        lochi_pool_show(pool, tail->start, tail->bytes); /* the rest is read from there */
    pool->moving.moves++;
    pool->moving.moved_bytes += lochi_pool_requested(block);
    move_tell(pool, from, block);
}

loch_status lochi_pool_slide(lochi_pool *pool, pool_block *block, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    pool_block *hole = block->before;
    if (!hole || lochi_pool_state(hole) != POOL_FREE || hole->lane != lane || hole->is_piece)
        return LOCH_FAIL(BUSY, "the free memory before %p was taken during the compaction", (void *)block->start);
    const uintptr_t to = hole->start;
    const bool is_used = lane->done != UINT64_MAX;
    size_t done = 0;
    LOCH_TRY_RETURN(lochi_pool_prepare_pages(pool, to, 1));
    LOCH_TRY_RETURN(move_order(pool, block, hole, lane));
    if (is_used) LOCH_TRY_RETURN(lochi_pool_note_use(pool, to, lane));
    lochi_pool_show(pool, to, hole->bytes + lochi_pool_requested(block));
    const loch_status status =
        lochi_copy_onward(lane->stream, (void *)to, (void *)block->start, lochi_pool_requested(block), &done);
    if (done) {
        move_commit_slide(pool, block, lane, is_used, done);
        return done == lochi_pool_requested(block) ? LOCH_OK : status;
    }
    if (is_used) lochi_pool_forget_uses(pool, to);
    lochi_pool_hide(pool, to, hole->bytes);
    return status;
}

/* --- pins --- */

static bool move_sleeps(const lochi_pool *pool, const lochi_movable *movable)
{
    if (!pool->sleep.naps) return false;
    const pool_block *block = lochi_pool_find_around(pool, (uintptr_t)movable->address);
    return block && lochi_pool_sleeps_at(pool, block->start, block->bytes);
}

loch_status lochi_movable_pin(loch_allocator *allocator, lochi_movable *movable, loch_stream *stream, void **out)
{
    lochi_pool *pool = allocator->pool;
    loch_status status = LOCH_OK;
    *out = NULL;
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, pool->device));
    lochi_lock_take(&pool->lock);
    pool_lane *lane = NULL;
    if (move_sleeps(pool, movable))
        status = lochi_pool_refuse_at(movable->address);
    else if (movable->lane || movable->torn_from)
        lane = lochi_pool_lane(pool, stream ? stream : pool->default_stream, &status);
    if (lane && movable->torn_from)
        status = lochi_pool_mend(pool, move_find_block(pool, movable->address), lane);
    else if (lane)
        status = move_wait(pool, movable, lane);
    if (status == LOCH_OK) {
        movable->pins++;
        *out = movable->address;
    }
    lochi_lock_drop(&pool->lock);
    return status;
}

/* Notes a stream that used the block, until the block is freed or moved. Waits for the stream if there is no host
 * memory for the note. */
static loch_status move_note(lochi_pool *pool, pool_block *block, loch_stream *stream)
{
    loch_status status;
    pool_lane *lane = lochi_pool_lane(pool, stream, &status);
    if (!lane) return loch_stream_sync(stream);
    if (lane == block->lane || lane->done == UINT64_MAX) return LOCH_OK;
    if (lochi_pool_note_use(pool, block->start, lane) != LOCH_OK) return loch_stream_sync(stream);
    const uint32_t recorded = lochi_recorder_of(pool->allocator);
    if (recorded) lochi_recorder_note_use(recorded, (void *)block->start, stream);
    block->has_uses = true;
    return LOCH_OK;
}

/* Notes a stream that used a small block, until the block is freed or moved. Waits for the stream if there is no
 * host memory for the note. */
static loch_status move_note_small(lochi_pool *pool, const pool_slab *slab, pool_word *word,
                                   const lochi_movable *movable, loch_stream *stream)
{
    loch_status status;
    pool_lane *lane = lochi_pool_lane(pool, stream, &status);
    if (!lane) return loch_stream_sync(stream);
    if (lane == slab->lane || lane->done == UINT64_MAX) return LOCH_OK;
    if (lochi_pool_note_use(pool, (uintptr_t)movable->address, lane) != LOCH_OK) return loch_stream_sync(stream);
    const uint32_t recorded = lochi_recorder_of(pool->allocator);
    if (recorded) lochi_recorder_note_use(recorded, movable->address, stream);
    atomic_fetch_or_explicit(word, POOL_WORD_HAS_USES, memory_order_relaxed);
    return LOCH_OK;
}

loch_status lochi_movable_unpin(loch_allocator *allocator, lochi_movable *movable, loch_stream *stream)
{
    lochi_pool *pool = allocator->pool;
    loch_status status = LOCH_OK;
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, pool->device));
    lochi_lock_take(&pool->lock);
    pool_block *block = move_find_block(pool, movable->address);
    pool_slab *slab;
    pool_word *word = lochi_pool_small_find(pool, movable, &slab);
    const bool is_owned = word || (block && block->owner == movable);
    if (!stream) stream = pool->default_stream;
    if (!lochi_movable_is_pinned(movable)) status = LOCH_FAIL(INVALID, "the buffer is not pinned");
    if (status == LOCH_OK && is_owned && !pool->policy.is_at_once)
        status = word ? move_note_small(pool, slab, word, movable, stream) : move_note(pool, block, stream);
    if (status == LOCH_OK) movable->pins--;
    lochi_lock_drop(&pool->lock);
    if (status != LOCH_OK || is_owned || pool->policy.is_at_once) return status;
    const loch_error saved = lochi_error_save(); /* a block of a capture stays where it is */
    if (loch_allocator_record_use(allocator, movable->address, stream) == LOCH_OK) return LOCH_OK;
    lochi_error_restore(&saved);
    return loch_stream_sync(stream);
}

void *lochi_movable_hold(loch_allocator *allocator, lochi_movable *movable)
{
    lochi_lock_take(&allocator->pool->lock);
    movable->pins++;
    void *address = movable->address;
    lochi_lock_drop(&allocator->pool->lock);
    return address;
}

void lochi_movable_drop(loch_allocator *allocator, lochi_movable *movable)
{
    lochi_lock_take(&allocator->pool->lock);
    movable->pins--;
    lochi_lock_drop(&allocator->pool->lock);
}

/* Makes `stream`, or the host if it is NULL, wait for the block's last move. Completes a move that failed half way. */
static loch_status move_settle(lochi_pool *pool, pool_block *block, lochi_movable *movable, loch_stream *stream)
{
    if (!movable->lane && !movable->torn_from) return LOCH_OK;
    loch_status status;
    pool_lane *lane = lochi_pool_lane(pool, stream ? stream : pool->default_stream, &status);
    if (!lane) return status;
    if (movable->torn_from) LOCH_TRY_RETURN(lochi_pool_mend(pool, block, lane));
    if (stream) return move_wait(pool, movable, lane);
    return movable->lane ? lochi_pool_wait_for_epoch(pool, movable->lane, movable->epoch) : LOCH_OK;
}

loch_status lochi_movable_close(loch_allocator *allocator, lochi_movable *movable, loch_stream *stream, void **out)
{
    lochi_pool *pool = allocator->pool;
    loch_status status = LOCH_OK;
    *out = NULL;
    if (stream) LOCH_TRY_RETURN(lochi_stream_check(stream, pool->device));
    lochi_lock_take(&pool->lock);
    pool_block *block = move_find_block(pool, movable->address);
    pool_slab *slab;
    const pool_word *word = lochi_pool_small_find(pool, movable, &slab);
    if (word || (block && block->owner == movable)) {
        status = move_settle(pool, block, movable, stream);
        if (status == LOCH_OK && word) lochi_pool_small_disown(pool, slab, word);
        if (status == LOCH_OK && !word) lochi_pool_disown(pool, block);
    }
    if (status == LOCH_OK) *out = movable->address;
    lochi_lock_drop(&pool->lock);
    return status;
}

void lochi_movable_forget(loch_allocator *allocator, const lochi_movable *movable)
{
    lochi_pool *pool = allocator->pool;
    lochi_lock_take(&pool->lock);
    pool_block *block = move_find_block(pool, movable->address);
    pool_slab *slab;
    const pool_word *word = lochi_pool_small_find(pool, movable, &slab);
    if (block && block->owner == movable) lochi_pool_disown(pool, block);
    if (word) lochi_pool_small_disown(pool, slab, word);
    lochi_lock_drop(&pool->lock);
}

loch_memory_kind lochi_movable_get_kind(const loch_allocator *allocator)
{
    return allocator->pool->kind;
}

uint64_t lochi_movable_count(loch_allocator *allocator, const lochi_movable *movable)
{
    lochi_pool *pool = allocator->pool;
    lochi_lock_take(&pool->lock);
    const uint64_t generation = movable->generation;
    lochi_lock_drop(&pool->lock);
    return generation;
}
