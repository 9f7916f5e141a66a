/* SPDX-License-Identifier: MIT */
/* Puts memory at addresses when no free block fits. */
#ifndef LOCHI_POOL_SUPPLY_H
#define LOCHI_POOL_SUPPLY_H

#include "memory/pool/heap/heap.h"
#include "memory/pool/supply/segment.h"
#include "memory/pool/supply/handle.h"
#include "memory/pool/supply/place.h"
#include "memory/pool/supply/price.h"
#include "memory/pool/supply/release.h"
#include "memory/pool/supply/reserve.h"
#include "memory/pool/supply/source.h"

/* Result of a request that needs a segment of the pool's source: alloc.c gets it without locks. */
#define POOL_NEEDS_SEGMENT LOCH_E_NOT_FOUND

/* Where lochi_pool_supply gets memory from. */
typedef enum pool_source {
    POOL_MOVED,  /* idle handles of this and other lanes, remapped, or new handles if those cost less */
    POOL_CREATED /* idle handles, and new ones for the rest */
} pool_source;

/* Chooses the size of a raw segment for a request. The pool's lock is held. */
pool_segment_size lochi_pool_size_segment(lochi_pool *pool, size_t bytes, size_t alignment);
/* Maps memory so that a free block of `want->bytes` can be cut out of the pool's addresses, in the place that costs
 * least. LOCH_OK: such a block exists now, at pool->planned. E_FRAGMENTED: not possible from that source. */
loch_status lochi_pool_supply(lochi_pool *pool, const pool_want *want, pool_source source);

#endif
