/* SPDX-License-Identifier: MIT */
/* Returns what streams that have ended leave in handles that other streams occupy. Otherwise only the next stream would
 * use the rest of these handles: the lane with the live blocks would take further handles for its next blocks, and the
 * pool would grow with every stream. */
#include "memory/pool/lanes/ended.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/lanes/lane.h"
#include "memory/pool/lanes/slab.h"
#include "memory/pool/lanes/uses.h"

/* Returns the lane of a block beside free memory of an ended stream, if it may have that memory; NULL if not. */
static pool_lane *ended_heir(const pool_block *neighbour)
{
    pool_lane *lane = neighbour ? neighbour->lane : NULL; /* addresses without memory have none */
    return lane && !lane->is_closed && !lane->is_spare && !lane->capture ? lane : NULL;
}

static void ended_return_bins(lochi_pool *pool, const pool_bins *bins)
{
    int bin = POOL_BINS - 1;
    for (pool_block *block; (block = lochi_pool_bins_below(bins, &bin)); bin--)
        for (pool_block *next; block; block = next) {
            next = block->list_next;
            pool_lane *heir = ended_heir(block->before);
            if (!heir) heir = ended_heir(block->behind);
            if (heir && !block->is_piece && !lochi_pool_find_whole(pool, block->start, block->start + block->bytes))
                lochi_pool_hand_over(pool, block, heir);
        }
}

void lochi_pool_return_rests(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_collect(pool); /* blocks of streams that ended before may have waited for the one that ends now */
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (!lane->is_closed || lane->capture) continue;
        lochi_pool_poll(pool, lane);
        if (!lochi_pool_has_passed(lane, lane->epoch)) continue;
        lochi_pool_slab_trim(pool, lane);
        ended_return_bins(pool, &lane->bins);
        ended_return_bins(pool, &lane->arenas);
    }
}
