/* SPDX-License-Identifier: MIT */
/* Resizes blocks in place. A refusal that leads to a move is a status alone, without an error record: no caller shows
 * it (lochi_allocator_resize_in_place). */
#include "memory/pool/serve/resize.h"
#include "base/fail.h"
#include "kit/text.h"
#include "memory/failure.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/front/front.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/serve/growable.h"
#include "memory/pool/trim/trim.h"
#include "memory/pool/state/state.h"
#include "memory/pool/pool.h"
#include "memory/pool/moving/moving.h"
#include "memory/pool/limits/limits.h"

/* Extends a block by `more` bytes of the free memory behind it. Two records are stocked. */
static loch_status resize_extend(lochi_pool *pool, pool_block *block, size_t more)
{
    pool_block *behind = block->behind;
    LOCH_TRY_RETURN(lochi_pool_cut(pool, behind, behind->start, more));
    lochi_pool_set_bytes(block, block->bytes + more);
    block->behind = behind->behind;
    if (block->behind) block->behind->before = block;
    lochi_pool_drop_record(pool, behind);
    pool->used += more;
    if (block->is_captured) pool->captured_bytes += more;
    return LOCH_OK;
}

/* Frees the end of a block. */
static void resize_shorten(lochi_pool *pool, pool_block *block, size_t bytes)
{
    pool_block *rest = lochi_pool_split(pool, block, block->start + bytes);
    pool->used -= rest->bytes;
    if (block->is_captured) pool->captured_bytes -= rest->bytes;
    lochi_pool_hide(pool, rest->start, rest->bytes);
    lochi_pool_make_free(pool, rest, rest->lane->epoch);
}

static bool resize_can_extend(const pool_block *block, size_t more)
{
    const pool_block *behind = block->behind;
    return behind && lochi_pool_state(behind) == POOL_FREE && behind->lane == block->lane && behind->bytes >= more;
}

/* Resizes a large block in place: takes free memory behind it, or frees its end. Everything that may fail comes
 * first, so that a frozen block that cannot be resized stays frozen. */
static loch_status resize_large(lochi_pool *pool, pool_block *block, size_t bytes)
{
    const size_t rounded = lochi_pool_round_large(pool, bytes), before = lochi_pool_requested(block);
    if (lochi_pool_is_range(block))
        return LOCH_FAIL(BUSY, "the block at %p is the range of a child pool", (void *)block->start);
    if (block->has_uses || block->is_piece) return LOCH_E_UNSUPPORTED;
    if (!lochi_pool_stock_records(pool, 2)) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    if (rounded > block->bytes && !resize_can_extend(block, rounded - block->bytes)) return LOCH_E_FRAGMENTED;
    if (block->frozen) LOCH_TRY_RETURN(lochi_pool_thaw(pool, block));
    if (rounded < block->bytes)
        LOCH_TRY_RETURN(lochi_pool_wipe(pool, block->lane, block->start + rounded, block->bytes - rounded));
    if (rounded > block->bytes)
        LOCH_TRY_RETURN(resize_extend(pool, block, rounded - block->bytes));
    else if (rounded < block->bytes)
        resize_shorten(pool, block, rounded);
    if (pool->policy.checker) lochi_poison_resize(pool, block->start, before, bytes, block->bytes);
    lochi_pool_set_requested(block, bytes);
    return LOCH_OK;
}

/* Resizes a small block within its class, unless that would waste much of it. */
static loch_status resize_small(lochi_pool *pool, const pool_found *found, uintptr_t address, size_t bytes)
{
    if (lochi_pool_round_request(pool, bytes) > found->allocated || bytes <= found->allocated / 2)
        return LOCH_E_UNSUPPORTED;
    atomic_fetch_and_explicit(found->word, ~POOL_WORD_FROZEN, memory_order_relaxed);
    atomic_fetch_add_explicit(found->word, (uint32_t)(bytes - found->requested), memory_order_relaxed);
    if (pool->policy.checker) lochi_poison_resize(pool, address, found->requested, bytes, found->allocated);
    return LOCH_OK;
}

/* Resizes a live block. */
static loch_status resize_found(lochi_pool *pool, const pool_found *found, void *address, size_t bytes,
                                size_t *allocated)
{
    pool_block *block = found->block;
    const bool is_growable = !found->word && lochi_pool_state(block) == POOL_GROWABLE;
    if (pool->sleep.is_asleep || lochi_pool_sleeps_at(pool, block->start, block->bytes))
        return lochi_pool_refuse_at(address);
    if (found->word)
        LOCH_TRY_RETURN(resize_small(pool, found, (uintptr_t)address, bytes));
    else if (is_growable)
        LOCH_TRY_RETURN(lochi_pool_resize_block(pool, block, bytes));
    else
        LOCH_TRY_RETURN(resize_large(pool, block, bytes));
    *allocated = found->word ? found->allocated : is_growable ? block->committed : block->bytes;
    lochi_pool_count_change(pool, lochi_pool_cache(pool, block->lane), (int64_t)bytes - (int64_t)found->requested,
                            (int64_t)*allocated - (int64_t)found->allocated);
    if (bytes > pool->counts.largest && bytes > found->requested) pool->counts.largest = bytes;
    lochi_pool_count_tag(pool, found->tag, found->requested, -1);
    lochi_pool_count_tag(pool, found->tag, bytes, 1);
    return LOCH_OK;
}

static loch_status resize_try(lochi_pool *pool, void *address, size_t bytes, size_t *allocated, bool is_retry)
{
    lochi_lock_take(&pool->lock);
    pool_found found;
    pool->counts.retries += is_retry;
    loch_status status = lochi_pool_find_live(pool, address, &found);
    bool is_dropped = false;
    if (status == LOCH_OK && lochi_pool_state(found.block) == POOL_GROWABLE)
        status = lochi_pool_take_supply(pool, &is_dropped);
    if (is_dropped) status = lochi_pool_find_live(pool, address, &found);
    if (status == LOCH_OK) status = resize_found(pool, &found, address, bytes, allocated);
    lochi_pool_look_at_idle(pool);
    lochi_pool_drop_locks(pool);
    return status;
}

/* Tries once more to grow a block after other pools have given memory back. Counts the failure. */
static loch_status resize_again(lochi_pool *pool, void *address, size_t bytes, loch_status status, size_t *allocated)
{
    const bool is_short = status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_FRAGMENTED;
    lochi_growth now = {0};
    const size_t more =
        lochi_pool_get_growth(pool, address, &now) && bytes > now.committed ? bytes - now.committed : bytes;
    size_t gone = 0;
    if (!lochi_error_is_final(status)) {
        if (status == LOCH_E_LIMIT || (status == LOCH_E_DEVICE_MEMORY && pool->is_related))
            gone = lochi_pool_ask_family(pool, more, false);
        if (is_short && !pool->range) gone += lochi_pool_ask_siblings(pool, more, status);
    }
    if (gone) status = resize_try(pool, address, bytes, allocated, true);
    if (status != LOCH_OK) lochi_failure_count(&pool->counts.failures);
    return status;
}

loch_status lochi_pool_resize(void *self, void *address, size_t bytes, size_t *allocated)
{
    lochi_pool *pool = self;
    const loch_status status = resize_try(pool, address, bytes, allocated, false);
    if (status == LOCH_OK || !lochi_pool_is_growable(pool, address)) return status;
    return resize_again(pool, address, bytes, status, allocated);
}
