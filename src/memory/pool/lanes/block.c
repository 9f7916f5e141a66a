/* SPDX-License-Identifier: MIT */
/* Large blocks in use: counts them in and out, and enters them in the table of pages. alloc.c
 * finds the memory for a block; blocks.c takes it back. */
#include "memory/pool/lanes/block.h"
#include "memory/ledger/ledger.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/lanes/lane.h"

loch_status lochi_pool_prepare_block(lochi_pool *pool, pool_block *block, size_t paged_bytes)
{
    lochi_lock_assert_held(&pool->lock);
    const loch_status status = lochi_pool_prepare_pages(pool, block->start, paged_bytes);
    if (status != LOCH_OK) lochi_pool_make_free(pool, block, lochi_pool_epoch(block));
    return status;
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
