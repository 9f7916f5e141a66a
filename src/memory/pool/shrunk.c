/* SPDX-License-Identifier: MIT */
/* Growable blocks with more memory than they need: the excess is unmapped after their streams have passed, and kept
 * as loose handles. */
#include "memory/pool/shrunk.h"
#include "memory/pool/cache.h"
#include "memory/pool/cells.h"
#include "memory/pool/handle.h"
#include "memory/pool/outside.h"
#include "memory/pool/record.h"

void lochi_pool_shrink(lochi_pool *pool, pool_block *block, size_t bytes)
{
    lochi_pool_assert_both(pool);
    while (block->committed > lochi_pool_round(pool, bytes)) {
        const uintptr_t end = block->start + block->committed;
        pool_handle *handle = lochi_pool_find_cell(pool, end - pool->cell_bytes)->handle;
        if (handle->at < block->start + bytes) return; /* the block needs a part of this handle */
        if (lochi_pool_unmap_loose(pool, handle) != LOCH_OK) return;
        block->committed -= handle->bytes;
        pool->used -= handle->bytes;
    }
}

void lochi_pool_drop_shrunk(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    if (!pool->has_shrunk) return;
    pool->has_shrunk = false;
    for (pool_block *block = pool->growables; block; block = block->list_next) {
        if (block->committed <= lochi_pool_round(pool, lochi_pool_requested(block))) continue;
        if (!lochi_pool_has_passed(block->lane, block->shrink_epoch) ||
            lochi_pool_sleeps_at(pool, block->start, block->committed)) {
            pool->has_shrunk = true;
            continue;
        }
        const size_t committed = block->committed;
        lochi_pool_shrink(pool, block, lochi_pool_requested(block));
        lochi_pool_count_change(pool, NULL, 0, (int64_t)block->committed - (int64_t)committed);
    }
}
