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

/* A status of the pool's own, without an error record: the request needs a segment of the pool's source, which alloc.c
 * gets without locks. No caller of the pool sees it. */
#define POOL_NEEDS_SEGMENT LOCH_STATUS_COUNT

/* Where lochi_pool_supply gets memory from. */
typedef enum pool_source {
    POOL_MOVED,  /* idle handles of this and other lanes, remapped, or new handles if those cost less */
    POOL_CREATED /* idle handles, and new ones for the rest */
} pool_source;

/* Chooses the size of a raw segment for a request. The pool's lock is held. */
pool_segment_size lochi_pool_size_segment(lochi_pool *pool, size_t bytes, size_t alignment);
/* Where lochi_pool_supply has mapped memory for a request. */
typedef struct pool_supplied {
    pool_block *block; /* the free block that the request can be cut out of; NULL with raw segments */
    uintptr_t at;      /* the address for the request in it */
} pool_supplied;

/* Maps memory so that a free block of `want->bytes` can be cut out of the pool's addresses, in the place that costs
 * least. LOCH_OK: such a block exists now; with virtual memory, `*out` says where. E_FRAGMENTED: not possible from that
 * source. POOL_NEEDS_SEGMENT. */
loch_status lochi_pool_supply(lochi_pool *pool, const pool_want *want, pool_source source, pool_supplied *out);

#endif
