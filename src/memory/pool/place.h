/* SPDX-License-Identifier: MIT */
/* Where memory is put when no free block fits. */
#ifndef LOCHI_POOL_PLACE_H
#define LOCHI_POOL_PLACE_H

#include "memory/pool/heap.h"

/* How the memory of lochi_pool_supply may come. */
typedef enum pool_source {
    POOL_MOVED,   /* free handles of the lane, and others' that have passed, mapped elsewhere */
    POOL_CREATED, /* those, and new ones for what is left */
    POOL_EXTRA    /* new ones alone, where little more than the most in use is held */
} pool_source;

/* Puts memory where it is missing so that a free block of `want->bytes` can be cut out of the addresses of the pool;
 * looks for the place that lacks least. LOCH_OK when such a block exists now. E_FRAGMENTED: not from that source. */
loch_status lochi_pool_supply(lochi_pool *pool, const pool_want *want, pool_source source);
/* Returns how large new handles are, for a request. */
size_t lochi_pool_choose_handle(const lochi_pool *pool, size_t request);

/* Gives free handles back to the device until `bytes` have gone or none is left that has passed. Returns what went. */
size_t lochi_pool_give_back(lochi_pool *pool, size_t bytes);
/* Counts the bytes of handles that lie wholly in free blocks, or are unmapped. */
size_t lochi_pool_count_idle(lochi_pool *pool);
/* Tells whether there is one that streams may still use: it can go back when they have passed. */
bool lochi_pool_has_unfinished(lochi_pool *pool);
/* Finds a handle of at most `max_bytes` that lies wholly in a free block of a lane and that nobody uses; NULL for none. */
pool_handle *lochi_pool_find_idle(lochi_pool *pool, const pool_lane *lane, size_t max_bytes, pool_block **out);

#endif
