/* SPDX-License-Identifier: MIT */
/* Makes room for a request that does not fit. */
#ifndef LOCHI_POOL_LADDER_H
#define LOCHI_POOL_LADDER_H

#include "memory/pool/heap/heap.h"

/* Finds a block for a request that did not fit. Tries everything that needs no other pool. Returns NULL with the
 * status. */
pool_block *lochi_pool_climb(lochi_pool *pool, const pool_want *want, loch_status *status);
/* Tries only the quick steps: up to new memory, without giving memory back and without waiting on the host. Returns
 * NULL with the status. */
pool_block *lochi_pool_climb_some(lochi_pool *pool, const pool_want *want, loch_status *status);

/* Cuts a request out of free memory in the place that costs least (price.c). Memory may be remapped for that. Returns
 * NULL if that is not possible, or if *status is not LOCH_OK. */
pool_block *lochi_pool_improve(lochi_pool *pool, const pool_want *want, loch_status *status);

#endif
