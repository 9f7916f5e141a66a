/* SPDX-License-Identifier: MIT */
/* Frees blocks, with the pool's lock held, and records uses on further streams. */
#include "memory/pool/serve/free.h"
#include "base/fail.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/front/front.h"
#include "memory/pool/serve/growable.h"
#include "memory/pool/trim/trim.h"
#include "memory/pool/moving/moving.h"
#include "memory/pool/state/state.h"
#include "memory/pool/pool.h"

/* Frees a block on another stream than its own. The caller has ordered that stream after all uses, so the block
 * waits for that stream. The host waits instead if there is no host memory for the record. */
static loch_status free_on_other(lochi_pool *pool, const pool_found *found, const void *address, loch_stream *stream)
{
    loch_status status;
    pool_lane *lane = lochi_pool_lane(pool, stream, &status);
    if (!lane) return loch_stream_sync(stream);
    if (lane == found->block->lane || lane->done == UINT64_MAX) return LOCH_OK;
    if (!found->word && !lane->capture && !found->block->is_captured &&
        lochi_pool_state(found->block) != POOL_GROWABLE) {
        found->block->lane = lane; /* the block is free in the order of that stream from now on */
        pool->crossed_bytes += found->block->bytes;
        return LOCH_OK;
    }
    status = lochi_pool_note_use(pool, (uintptr_t)address, lane);
    if (status != LOCH_OK) return loch_stream_sync(stream);
    lochi_pool_set_uses(found);
    return LOCH_OK;
}

static bool free_has_uses(const pool_found *found)
{
    return found->word ? (atomic_load_explicit(found->word, memory_order_relaxed) & POOL_WORD_HAS_USES) != 0
                       : found->block->has_uses;
}

static void free_small(lochi_pool *pool, pool_cache *cache, const pool_found *found, uintptr_t address)
{
    const bool has_uses = free_has_uses(found);
    pool_slab *slab = found->block->slab;
    lochi_pool_small_disown(pool, slab, found->word);
    if (atomic_load_explicit(found->word, memory_order_relaxed) & POOL_WORD_NAMED) lochi_pool_unname(slab, found->word);
    atomic_store_explicit(found->word, POOL_WORD_FREED, memory_order_relaxed);
    lochi_pool_hide_block(pool, address, found->allocated);
    if (has_uses) {
        lochi_pool_wait_for_uses(pool, address, found->block, found->word);
        return;
    }
    if (!lochi_pool_wipe_word(pool, slab, found->word)) return;
    const pool_entry entry = {(void *)address, found->word};
    const bool is_kept = cache && cache->lane == found->block->lane && !slab->is_closed;
    if (!is_kept || !lochi_pool_cache_give(pool, cache, slab, entry)) lochi_pool_slab_give(pool, slab, found->word);
}

/* Frees a block that no further stream uses. */
static inline void free_whole(lochi_pool *pool, pool_cache *cache, pool_block *block)
{
    if (LOCHI_UNLIKELY(pool->policy.is_wiped) && !lochi_pool_wipe_block(pool, block)) return;
    if (cache && cache->lane == block->lane && !block->is_piece && lochi_pool_cache_give_block(pool, cache, block))
        return;
    lochi_pool_put_block(pool, block);
}

static void free_large(lochi_pool *pool, pool_cache *cache, pool_block *block)
{
    if (lochi_pool_state(block) == POOL_GROWABLE) {
        lochi_pool_free_growable(pool, block);
        return;
    }
    lochi_pool_hide_block(pool, block->start, block->bytes);
    if (lochi_pool_state(block) != POOL_USED && block->owner) lochi_pool_disown(pool, block);
    lochi_pool_set_id(block, 0);
    block->tag = 0;
    if (block->has_uses) {
        block->has_uses = false;
        lochi_pool_wait_for_uses(pool, block->start, block, NULL);
        return;
    }
    free_whole(pool, cache, block);
}

/* Frees a large block that has neither tag, further streams nor owner: the state tells that. Returns false for all
 * other blocks and for wrong addresses. */
static inline bool free_used(lochi_pool *pool, uintptr_t address)
{
    pool_block *block = lochi_pool_page_block(lochi_pool_find_page(pool, address));
    if (!block || block->start != address || lochi_pool_state(block) != POOL_USED) return false;
    pool_cache *cache = lochi_pool_cache_of(pool, block->lane);
    const size_t requested = lochi_pool_requested(block);
    if (LOCHI_LIKELY(cache && !pool->is_shared))
        lochi_pool_note_free(cache, requested, block->bytes);
    else
        lochi_pool_count_free(pool, cache, requested, block->bytes);
    lochi_pool_hide_block(pool, block->start, block->bytes);
    lochi_pool_set_id(block, 0);
    free_whole(pool, pool->sleep.naps ? NULL : cache, block); /* threads do not cache memory that is asleep */
    return true;
}

/* Finds the block to free. Growable blocks need the supply lock. If another thread has it, the call waits and finds the
 * block again, or fails with E_BUSY if it may not wait. */
static loch_status free_find(lochi_pool *pool, const void *address, bool may_wait, pool_found *found)
{
    bool is_dropped = false;
    loch_status status = lochi_pool_find_live(pool, address, found);
    if (status != LOCH_OK || found->word || lochi_pool_state(found->block) != POOL_GROWABLE) return status;
    if (!may_wait) return lochi_lock_try(&pool->supply) ? LOCH_OK : LOCH_E_BUSY;
    status = lochi_pool_take_supply(pool, &is_dropped);
    return is_dropped ? lochi_pool_find_live(pool, address, found) : status;
}

static loch_status free_locked(lochi_pool *pool, void *address, size_t bytes, loch_stream *stream, bool may_wait)
{
    lochi_lock_assert_held(&pool->lock);
    pool_found found;
    loch_status status = free_find(pool, address, may_wait, &found);
    if (status == LOCH_OK && bytes && bytes != found.requested)
        status = LOCH_FAIL(INVALID, "the block at %p has %zu bytes, not %zu", address, found.requested, bytes);
    const bool is_special = status == LOCH_OK && lochi_pool_state(found.block) == POOL_SPECIAL;
    if (is_special && lochi_pool_is_range(found.block))
        status = LOCH_FAIL(BUSY, "the block at %p is the range of a child pool", address);
    else if (is_special && found.block->frozen)
        status = lochi_pool_thaw(pool, found.block);
    if (status == LOCH_OK && stream && stream != found.block->lane->stream)
        status = free_on_other(pool, &found, address, stream);
    if (status == LOCH_OK) {
        pool_cache *cache = lochi_pool_cache(pool, found.block->lane);
        lochi_pool_count_free(pool, cache, found.requested, found.allocated);
        lochi_pool_count_tag(pool, found.tag, found.requested, -1);
        if (pool->sleep.naps) cache = NULL; /* threads do not cache memory that is asleep */
        if (found.word)
            free_small(pool, cache, &found, (uintptr_t)address);
        else
            free_large(pool, cache, found.block);
    }
    return status;
}

loch_status lochi_pool_free(void *self, void *address, size_t bytes, loch_stream *stream)
{
    lochi_pool *pool = self;
    lochi_lock_take(&pool->lock);
    const loch_status status = free_locked(pool, address, bytes, stream, true);
    lochi_pool_look_at_idle(pool);
    lochi_pool_drop_locks(pool);
    return status;
}

/* Waits for no other thread: while it has no lock, the pool could end. The slow path keeps the pool. */
bool lochi_pool_free_locked(lochi_pool *pool, void *address)
{
    lochi_lock_take(&pool->lock);
    const bool is_open = atomic_load_explicit(&pool->gate, memory_order_relaxed) == 0;
    const bool is_freed = is_open && (LOCHI_LIKELY(free_used(pool, (uintptr_t)address)) ||
                                      free_locked(pool, address, 0, NULL, false) == LOCH_OK);
    lochi_pool_look_at_idle(pool);
    lochi_pool_drop_locks(pool); /* last access to the pool: after the gate opens, another thread may end the pool */
    return is_freed;
}

loch_status lochi_pool_record_use(void *self, void *address, loch_stream *stream)
{
    lochi_pool *pool = self;
    lochi_lock_take(&pool->lock);
    pool_found found;
    loch_status status = lochi_pool_find_live(pool, address, &found);
    /* Nothing waits for a stream if queued work is done at once. */
    pool_lane *lane = status == LOCH_OK && !pool->policy.is_at_once ? lochi_pool_lane(pool, stream, &status) : NULL;
    if (lane && lane != found.block->lane && lane->done != UINT64_MAX) {
        status = lochi_pool_note_use(pool, (uintptr_t)address, lane);
        if (status == LOCH_OK) lochi_pool_set_uses(&found);
    }
    lochi_pool_look_at_idle(pool);
    lochi_pool_drop_locks(pool);
    return status;
}
