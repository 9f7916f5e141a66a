/* SPDX-License-Identifier: MIT */
/* Movable small blocks: their owners, and one move.
 *
 * A slab gets a table of owners when one of its blocks gets an owner. Only a freeze moves small blocks, into closed
 * slabs: these take no other blocks, and end with their last block, frozen or not. The copy is ordered like that of
 * a large block (move.c). The old place waits in its slab like a block that was freed while the stream of the copy
 * used it. */
#include "memory/pool/moving/move_small.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "device/copy.h"
#include "memory/live/live.h"
#include "memory/movable.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/front/front.h"
#include "memory/pool/state/state.h"
#include "memory/recorder/recorder.h"
#include "memory/session/session.h"

static lochi_movable **small_owner(const pool_slab *slab, const pool_word *word)
{
    return slab->owners ? &slab->owners[word - slab->words] : NULL;
}

void lochi_pool_small_own(lochi_pool *pool, pool_slab *slab, lochi_movable *movable)
{
    lochi_lock_assert_held(&pool->lock);
    pool_word *word = lochi_pool_slab_word(slab, (uintptr_t)movable->address);
    if (!word || slab->block->is_captured || slab->block->is_piece || !lochi_pool_small_prepare(slab)) return;
    *small_owner(slab, word) = movable;
    atomic_fetch_or_explicit(word, POOL_WORD_KEPT_OFF, memory_order_relaxed); /* a free removes the owner */
    pool->moving.small++;
}

void lochi_pool_small_disown(lochi_pool *pool, const pool_slab *slab, const pool_word *word)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_movable **owner = small_owner(slab, word);
    if (!owner || !*owner) return;
    *owner = NULL;
    pool->moving.small--;
}

pool_word *lochi_pool_small_find(const lochi_pool *pool, const lochi_movable *movable, pool_slab **slab)
{
    lochi_lock_assert_held(&pool->lock);
    *slab = lochi_pool_page_slab(lochi_pool_find_page(pool, (uintptr_t)movable->address));
    pool_word *word = *slab ? lochi_pool_slab_word(*slab, (uintptr_t)movable->address) : NULL;
    lochi_movable **owner = word ? small_owner(*slab, word) : NULL;
    return owner && *owner == movable ? word : NULL;
}

static uintptr_t small_address(const pool_slab *slab, const pool_word *word)
{
    return slab->start + (uintptr_t)(word - slab->words) * slab->object_bytes;
}

static const pool_use *small_uses(const lochi_pool *pool, const pool_slab *slab, const pool_word *word)
{
    if (!(atomic_load_explicit(word, memory_order_relaxed) & POOL_WORD_HAS_USES)) return NULL;
    const lochi_tree_node *node = lochi_tree_at_or_below(&pool->recorded_uses, small_address(slab, word));
    return LOCHI_CONTAINER(node, pool_recorded_uses, node)->uses;
}

bool lochi_pool_small_is_movable(const lochi_pool *pool, const pool_slab *slab, const pool_word *word)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_movable **owner = small_owner(slab, word);
    if (!owner || !*owner || lochi_movable_is_pinned(*owner) || slab->is_closed || slab->is_asleep) return false;
    if (slab->lane->is_out_of_reach) return false;
    for (const pool_use *use = small_uses(pool, slab, word); use; use = use->next)
        if (use->lane->is_out_of_reach) return false;
    return true;
}

/* Does everything that may fail before the copy. On failure the two use records of the lane stay; they only say that
 * the lane may use the two places. */
static loch_status small_prepare(lochi_pool *pool, pool_slab *slab, pool_word *word, pool_slab *target, uintptr_t to,
                                 pool_lane *lane)
{
    const bool is_used = lane->done != UINT64_MAX; /* the copy may still run after the call */
    if (atomic_load_explicit(word, memory_order_relaxed) & POOL_WORD_NAMED && !lochi_pool_slab_ids(target))
        return LOCH_FAIL(HOST_MEMORY, "no host memory for the ids of small blocks");
    LOCH_TRY_RETURN(lochi_pool_follow(pool, lane, slab->lane));
    for (const pool_use *use = small_uses(pool, slab, word); use; use = use->next)
        LOCH_TRY_RETURN(lochi_pool_follow(pool, lane, use->lane));
    if (is_used && lane != slab->lane) {
        LOCH_TRY_RETURN(lochi_pool_note_use(pool, small_address(slab, word), lane));
        atomic_fetch_or_explicit(word, POOL_WORD_HAS_USES, memory_order_relaxed);
    }
    return is_used && lane != target->lane ? lochi_pool_note_use(pool, to, lane) : LOCH_OK;
}

/* Moves the block's identity to the target. The old place becomes free after all streams that used it, the copying
 * stream included. */
static void small_commit(lochi_pool *pool, pool_slab *slab, pool_word *word, pool_slab *target, const pool_entry *entry,
                         pool_lane *lane)
{
    const bool is_used = lane->done != UINT64_MAX;
    const uintptr_t from = small_address(slab, word);
    const uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    lochi_movable *movable = *small_owner(slab, word);
    const bool has_uses = is_used && lane != target->lane;
    atomic_store_explicit(entry->word, (seen & ~POOL_WORD_HAS_USES) | (has_uses ? POOL_WORD_HAS_USES : 0),
                          memory_order_relaxed);
    *small_owner(target, entry->word) = movable;
    *small_owner(slab, word) = NULL;
    if (seen & POOL_WORD_NAMED) {
        const pool_id *id = &lochi_pool_slab_ids(slab)[word - slab->words];
        atomic_store_explicit(&lochi_pool_slab_ids(target)[entry->word - target->words],
                              atomic_load_explicit(id, memory_order_relaxed), memory_order_relaxed);
        lochi_pool_unname(slab, word);
    }
    lochi_session_follow(pool->allocator, (void *)from, entry->address);
    lochi_live_move(pool->allocator, (void *)from, entry->address);
    movable->address = entry->address;
    movable->generation++;
    movable->lane = is_used ? lane : NULL;
    movable->epoch = lane->epoch;
    pool->moving.moves++;
    pool->moving.moved_bytes += seen & POOL_WORD_BYTES;
    const uint32_t recorded = lochi_recorder_of(pool->allocator);
    if (recorded) lochi_recorder_note_move(recorded, (void *)from, entry->address);
    if (pool->moving.hook) {
        LOCHI_NOT_CANCELLED;
        const loch_move move = {(void *)from, entry->address, seen & POOL_WORD_BYTES, lochi_pool_word_tag(seen),
                                movable->buffer};
        pool->moving.hook(pool->allocator, &move, pool->moving.hook_user);
    }
    atomic_store_explicit(word, POOL_WORD_FREED, memory_order_relaxed);
    if (pool->policy.checker) lochi_poison_move(pool, from, (uintptr_t)entry->address, seen & POOL_WORD_BYTES);
    lochi_pool_hide(pool, from, slab->object_bytes);
    if (seen & POOL_WORD_HAS_USES)
        lochi_pool_wait_for_uses(pool, from, slab->block, word);
    else if (lochi_pool_wipe_word(pool, slab, word))
        lochi_pool_slab_give(pool, slab, word);
}

loch_status lochi_pool_small_move(lochi_pool *pool, pool_slab *slab, pool_word *word, pool_slab *target,
                                  pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    const size_t bytes = atomic_load_explicit(word, memory_order_relaxed) & POOL_WORD_BYTES;
    const pool_entry entry = lochi_pool_slab_pop(target);
    const uintptr_t to = (uintptr_t)entry.address;
    atomic_store_explicit(entry.word, 0, memory_order_relaxed);
    loch_status status = small_prepare(pool, slab, word, target, to, lane);
    if (status == LOCH_OK) {
        lochi_pool_show(pool, to, bytes);
        status = lochi_copy_own(lane->stream, entry.address, (void *)small_address(slab, word), bytes);
    }
    if (status == LOCH_OK) {
        small_commit(pool, slab, word, target, &entry, lane);
        return LOCH_OK;
    }
    /* A queued copy may still write there. The target takes no other block, and its memory is free in the order of
     * the lane. */
    const lochi_tree_node *node = lochi_tree_at_or_below(&pool->recorded_uses, to);
    if (node && node->key == to) lochi_pool_forget_uses(pool, to);
    lochi_pool_hide(pool, to, target->object_bytes);
    if (target->free_count + 1 == target->count) target->block->lane = lane;
    const loch_error saved = lochi_error_save();
    const bool is_clean = lochi_pool_wipe(pool, lane, to, target->object_bytes) == LOCH_OK;
    lochi_error_restore(&saved);
    if (is_clean || lochi_pool_wipe_word(pool, target, entry.word)) lochi_pool_slab_give(pool, target, entry.word);
    return status;
}
