/* SPDX-License-Identifier: MIT */
/* Makes room for a request that does not fit. */
#ifndef LOCHI_POOL_LADDER_H
#define LOCHI_POOL_LADDER_H

#include "memory/pool/heap/heap.h"

/* How far a request climbs. */
typedef enum pool_height {
    POOL_TO_NEW_MEMORY, /* the quick steps: nothing goes back, and the host does not wait */
    POOL_TO_THE_TOP     /* everything that needs no other pool */
} pool_height;

/* Finds a block for a request: in free memory, or by climbing. Takes the supply lock for that; the pool's lock is held,
 * and may be dropped meanwhile. Returns NULL with the status. */
pool_block *lochi_pool_climb(lochi_pool *pool, const pool_want *want, pool_height height, loch_status *status);

/* Cuts a request out of free memory in the place that costs least (price.c). Memory may be remapped for that. Returns
 * NULL if that is not possible, or if *status is not LOCH_OK. */
pool_block *lochi_pool_improve(lochi_pool *pool, const pool_want *want, loch_status *status);

#endif
