/* SPDX-License-Identifier: MIT */
/* Puts memory at addresses when no free block fits. */
#ifndef LOCHI_POOL_PLACE_H
#define LOCHI_POOL_PLACE_H

#include "memory/pool/heap.h"

/* Where lochi_pool_supply gets memory from. */
typedef enum pool_source {
    POOL_MOVED,   /* idle handles of this and other lanes, remapped */
    POOL_CREATED, /* idle handles, and new ones for the rest */
    POOL_EXTRA    /* new handles only, while little more than the most in use is held */
} pool_source;

/* Maps memory so that a free block of `want->bytes` can be cut out of the pool's addresses. Chooses the place that
 * lacks the least memory. LOCH_OK: such a block exists now. E_FRAGMENTED: not possible from that source. */
loch_status lochi_pool_supply(lochi_pool *pool, const pool_want *want, pool_source source);
/* Returns the size of new handles for a request. */
size_t lochi_pool_choose_handle(const lochi_pool *pool, size_t request);

/* Gives idle handles back to the device until `bytes` have gone or none is left. Returns the bytes given back. */
size_t lochi_pool_give_back(lochi_pool *pool, size_t bytes);
/* Returns the bytes of handles that are unmapped or lie wholly in free blocks. */
size_t lochi_pool_count_idle(lochi_pool *pool);
/* Tells whether a handle lies wholly in a free block that streams may still use. It can go back when they have
 * passed. */
bool lochi_pool_has_unfinished(lochi_pool *pool);
/* Finds an idle handle of at most `max_bytes` that lies wholly in a free block of a lane; NULL for none. */
pool_handle *lochi_pool_find_idle(lochi_pool *pool, const pool_lane *lane, size_t max_bytes, pool_block **out);

#endif
