/* SPDX-License-Identifier: MIT */
/* Finds handles that lie wholly in free blocks, and gives them back to the device. */
#include "memory/pool/release.h"
#include "memory/pool/cells.h"
#include "memory/pool/handle.h"
#include "memory/pool/lane.h"
#include "memory/pool/outside.h"
#include "memory/pool/segment.h"

static pool_handle *release_first_whole(lochi_pool *pool, const pool_block *block, uintptr_t from)
{
    return lochi_pool_find_whole(pool, from > block->start ? from : block->start, block->start + block->bytes);
}

static bool release_has_unfinished(lochi_pool *pool, const pool_lane *lane, const pool_bins *bins)
{
    int bin = POOL_BINS - 1;
    for (pool_block *block; (block = lochi_pool_bins_below(bins, &bin)); bin--)
        for (; block && block->bytes >= pool->cell_bytes; block = block->list_next) {
            if (lochi_pool_has_passed(lane, lochi_pool_epoch(block)) || block->is_piece) continue;
            const pool_handle *handle = release_first_whole(pool, block, 0);
            for (; handle; handle = release_first_whole(pool, block, handle->at + handle->bytes))
                if (!lochi_pool_is_past(block, handle)) return true;
        }
    return false;
}

bool lochi_pool_has_unfinished(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next)
        if (!lane->capture &&
            (release_has_unfinished(pool, lane, &lane->bins) || release_has_unfinished(pool, lane, &lane->nests)))
            return true;
    return false;
}

size_t lochi_pool_count_idle(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    size_t bytes = pool->loose_bytes;
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        int bin = POOL_BINS - 1;
        for (pool_block *block; (block = lochi_pool_bins_below(&lane->bins, &bin)); bin--)
            for (; block; block = block->list_next) {
                const pool_handle *handle = release_first_whole(pool, block, 0);
                for (; handle; handle = release_first_whole(pool, block, handle->at + handle->bytes))
                    bytes += handle->bytes;
            }
    }
    return bytes;
}

pool_handle *lochi_pool_find_idle(lochi_pool *pool, const pool_lane *lane, size_t max_bytes, pool_block **out)
{
    lochi_lock_assert_held(&pool->lock);
    int bin = POOL_BINS - 1;
    for (pool_block *block; (block = lochi_pool_bins_below(&lane->bins, &bin)); bin--)
        for (; block; block = block->list_next) {
            if (block->bytes < pool->cell_bytes / 2) return NULL; /* the bins below have smaller blocks still */
            if (block->bytes < pool->cell_bytes || block->is_piece) continue;
            pool_handle *handle = release_first_whole(pool, block, 0);
            while (handle && (handle->bytes > max_bytes || !lochi_pool_is_past(block, handle)))
                handle = release_first_whole(pool, block, handle->at + handle->bytes);
            if (!handle) continue;
            *out = block;
            return handle;
        }
    return NULL;
}

size_t lochi_pool_give_back(lochi_pool *pool, size_t bytes)
{
    lochi_pool_assert_both(pool);
    size_t gone = 0;
    if (pool->range) return 0; /* a range stays until the pool ends */
    while (pool->loose && gone < bytes) {
        gone += pool->loose->bytes;
        lochi_pool_destroy_loose(pool, pool->loose);
    }
    for (pool_lane *lane = pool->lanes; lane && gone < bytes; lane = lane->next) {
        if (lane->capture) continue;
        pool_block *block;
        for (pool_handle *handle; gone < bytes && (handle = lochi_pool_find_idle(pool, lane, SIZE_MAX, &block));) {
            const size_t size = handle->handle ? handle->bytes : handle->raw_bytes;
            const loch_status status = handle->handle ? lochi_pool_destroy_free(pool, handle, block)
                                                      : lochi_pool_drop_segment(pool, handle, block);
            if (status != LOCH_OK) return gone;
            gone += size;
        }
    }
    return gone;
}
