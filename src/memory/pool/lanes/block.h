/* SPDX-License-Identifier: MIT */
/* Large blocks in use. */
#ifndef LOCHI_POOL_BLOCK_H
#define LOCHI_POOL_BLOCK_H

#include "base/fail.h"
#include "memory/pool/heap/heap.h"

/* Rounds a request up as the pool's options say. */
static inline size_t lochi_pool_round_request(const lochi_pool *pool, size_t bytes)
{
    const size_t round = pool->options.round_bytes;
    if (LOCHI_UNLIKELY(round > 1)) bytes = (bytes + round - 1) / round * round;
    return bytes;
}

/* Returns the size in bytes of a large block for a request of `bytes`. */
static inline size_t lochi_pool_round_large(const lochi_pool *pool, size_t bytes)
{
    bytes = lochi_pool_round_request(pool, bytes);
    if (LOCHI_UNLIKELY(pool->is_unsplit)) { /* a whole segment */
        const size_t step = pool->step_bytes;
        return (bytes + step - 1) / step * step;
    }
    if (bytes <= POOL_PAGE)
        bytes = POOL_PAGE + 1; /* a large block is longer than a page, so at most one block starts in a page */
    return (bytes + POOL_UNIT - 1) & ~(POOL_UNIT - 1);
}

/* Makes the table of pages of a raw segment for a block that was cut for a request. On failure the block is free
 * again. */
loch_status lochi_pool_prepare_block(lochi_pool *pool, pool_block *block, size_t paged_bytes);
/* Counts in a block that was cut for a request. Enters its first page, or all pages of a slab. On failure the block
 * is free again. */
static inline loch_status lochi_pool_use_block(lochi_pool *pool, pool_block *block, size_t paged_bytes)
{
    lochi_lock_assert_held(&pool->lock);
    if (LOCHI_UNLIKELY(!pool->is_virtual)) LOCH_TRY_RETURN(lochi_pool_prepare_block(pool, block, paged_bytes));
    lochi_pool_set_state(block, POOL_USED);
    if (LOCHI_UNLIKELY(pool->is_whole)) block->is_piece = true; /* other pools have no pieces */
    lochi_pool_enter_page(pool, block->start, lochi_pool_page_of(block));
    pool->used += block->bytes;
    if (pool->used - pool->waiting_bytes > pool->peak_used) pool->peak_used = pool->used - pool->waiting_bytes;
    if (block->is_captured) pool->captured_bytes += block->bytes;
    return LOCH_OK;
}
/* Counts a block out of the figures. */
void lochi_pool_uncount(lochi_pool *pool, const pool_block *block);
/* Frees a block that no stream uses any more. */
void lochi_pool_put_block(lochi_pool *pool, pool_block *block);
/* Counts a block of a tag in (1) or out (-1). Tag 0 counts nothing. */
void lochi_pool_count_tag(lochi_pool *pool, loch_tag tag, size_t requested, int sign);

#endif
