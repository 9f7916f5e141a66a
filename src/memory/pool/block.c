/* SPDX-License-Identifier: MIT */
/* Large blocks in use: rounds their sizes, counts them in and out, and enters them in the table of pages. alloc.c
 * finds the memory for a block; heap.c takes it back. */
#include "memory/pool/block.h"
#include "memory/ledger/ledger.h"
#include "memory/pool/bounds.h"
#include "memory/pool/heap.h"
#include "memory/pool/lane.h"

size_t lochi_pool_round_request(const lochi_pool *pool, size_t bytes)
{
    const size_t round = pool->options.round_bytes;
    if (round > 1) bytes = (bytes + round - 1) / round * round;
    return bytes;
}

size_t lochi_pool_round_large(const lochi_pool *pool, size_t bytes)
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

loch_status lochi_pool_use_block(lochi_pool *pool, pool_block *block, size_t paged_bytes)
{
    lochi_lock_assert_held(&pool->lock);
    const loch_status status = lochi_pool_prepare_pages(pool, block->start, paged_bytes);
    if (status != LOCH_OK) {
        lochi_pool_make_free(pool, block, lochi_pool_epoch(block));
        return status;
    }
    lochi_pool_set_state(block, POOL_USED);
    block->is_piece = pool->is_whole;
    lochi_pool_enter_page(pool, block->start, lochi_pool_page_of(block));
    pool->used += block->bytes;
    if (pool->used - pool->waiting_bytes > pool->peak_used) pool->peak_used = pool->used - pool->waiting_bytes;
    if (block->is_captured) pool->captured_bytes += block->bytes;
    return LOCH_OK;
}

void lochi_pool_uncount(lochi_pool *pool, const pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    pool->used -= block->bytes;
    if (block->is_captured) pool->captured_bytes -= block->bytes;
}

void lochi_pool_put_block(lochi_pool *pool, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    pool_lane *lane = block->lane;
    lochi_pool_uncount(pool, block);
    if (lochi_pool_state(block) != POOL_SLAB) lochi_pool_enter_page(pool, block->start, POOL_MARK(block->start));
    lochi_pool_note_freed(pool, lane, block->bytes);
    lochi_pool_make_free(pool, block, lane->epoch);
}

void lochi_pool_count_tag(lochi_pool *pool, loch_tag tag, size_t requested, int sign)
{
    if (!tag) return;
    const lochi_entry entry = {.requested = requested, .tag = (uint16_t)tag};
    lochi_ledger_count_tag(pool->tags, &entry, sign, sign > 0);
}
