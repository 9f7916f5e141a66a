/* SPDX-License-Identifier: MIT */
/* Giving memory back to the device: what threads, slabs and streams keep becomes free first, as far as it can. */
#include "memory/pool/trim.h"
#include "memory/pool/cache.h"
#include "memory/pool/handle.h"
#include "memory/pool/heap.h"
#include "memory/pool/lane.h"
#include "memory/pool/place.h"
#include "memory/pool/shrunk.h"
#include "memory/pool/slab.h"
#include "memory/pool/uses.h"

void lochi_pool_empty_caches(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_flush_threads(pool);
    if (pool->is_whole) lochi_pool_join_pieces(pool, SIZE_MAX);
}

/* Frees what threads, slabs and streams keep, as far as it can. */
static void trim_gather(lochi_pool *pool)
{
    lochi_pool_empty_caches(pool);
    lochi_pool_collect(pool);
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        lochi_pool_poll(pool, lane);
        lochi_pool_slab_trim(pool, lane);
    }
    lochi_pool_drop_faded(pool, 0);
    lochi_pool_drop_shrunk(pool);
    lochi_pool_join_lanes(pool);
}

size_t lochi_pool_trim(lochi_pool *pool, size_t keep)
{
    lochi_lock_assert_held(&pool->lock);
    const size_t before = pool->reserved;
    trim_gather(pool);
    if (pool->range) return 0;
    if (lochi_pool_free_bytes(pool) > keep) lochi_pool_give_back(pool, lochi_pool_free_bytes(pool) - keep);
    /* The rest is in use by streams as far as is known. Blocks that waited for others may leave slabs empty, which are
     * freed behind them: twice. */
    for (int i = 0; i < 2 && lochi_pool_free_bytes(pool) + pool->waiting_bytes > keep; i++) {
        lochi_pool_wait_for_all(pool);
        trim_gather(pool);
        if (lochi_pool_free_bytes(pool) > keep) lochi_pool_give_back(pool, lochi_pool_free_bytes(pool) - keep);
    }
    return before - pool->reserved;
}
