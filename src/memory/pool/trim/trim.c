/* SPDX-License-Identifier: MIT */
/* Gives memory back to the device. First frees what threads, slabs and streams hold, as far as possible. */
#include "memory/pool/trim/trim.h"
#include "memory/pool/front/front.h"
#include "memory/pool/supply/supply.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"
#include "memory/pool/trim/shrunk.h"

/* Frees what threads cache. */
static void trim_flush(lochi_pool *pool)
{
    lochi_pool_stop_outside(pool);
    lochi_pool_flush_all(pool, lochi_pool_flush);
    lochi_pool_flush_transfers(pool);
    lochi_pool_go(pool);
}

void lochi_pool_empty_caches(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    trim_flush(pool);
    if (pool->policy.is_whole) lochi_pool_join_pieces(pool, SIZE_MAX);
}

void lochi_pool_gather(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    trim_flush(pool);
    lochi_pool_collect(pool);
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        lochi_pool_poll(pool, lane);
        lochi_pool_slab_trim(pool, lane);
    }
    lochi_pool_drop_stale(pool, 0);
    lochi_pool_drop_shrunk(pool);
    if (pool->policy.is_whole) lochi_pool_join_pieces(pool, SIZE_MAX); /* after the slabs, which are pieces too */
    if (!pool->is_of_graphs) lochi_pool_join_lanes(pool);              /* arenas stay: no handle can go back */
}

/* Tells whether streams may still use free memory, or a freed block waits for streams: then waiting can help. */
static bool trim_is_unfinished(const lochi_pool *pool)
{
    if (pool->waiting || pool->stale.first || pool->has_shrunk) return true;
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next)
        if (!lochi_pool_has_passed(lane, lane->freed)) return true;
    return false;
}

size_t lochi_pool_count_trim(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    lochi_pool_gather(pool);
    if (pool->is_of_graphs) return lochi_pool_count_idle(pool, false);
    const bool is_waiting = pool->waiting_bytes || pool->stale.first || pool->has_shrunk; /* may complete any handle */
    return is_waiting ? lochi_pool_count_spare(pool) : lochi_pool_count_whole(pool);
}

size_t lochi_pool_trim(lochi_pool *pool, size_t keep)
{
    lochi_pool_assert_both(pool);
    const size_t before = pool->reserved;
    lochi_pool_gather(pool);
    lochi_pool_drop_annexes(pool);
    if (pool->range) return 0;
    if (lochi_pool_free_bytes(pool) > keep) lochi_pool_give_back(pool, lochi_pool_free_bytes(pool) - keep, NULL);
    if (pool->is_of_graphs) return before - pool->reserved; /* waiting gains nothing: free memory belongs to graphs */
    /* Streams may still use the rest: wait for them. Blocks that waited for other streams may leave empty slabs,
     * which are freed in the order of their stream: so do it twice. */
    for (int i = 0; i < 2 && lochi_pool_free_bytes(pool) + pool->waiting_bytes > keep && trim_is_unfinished(pool);
         i++) {
        lochi_pool_wait_for_all(pool);
        lochi_pool_gather(pool);
        if (lochi_pool_free_bytes(pool) > keep) lochi_pool_give_back(pool, lochi_pool_free_bytes(pool) - keep, NULL);
    }
    return before - pool->reserved;
}
