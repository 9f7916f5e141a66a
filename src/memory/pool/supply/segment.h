/* SPDX-License-Identifier: MIT */
/* Raw segments. Both locks are held; driver calls are made outside the pool's lock (outside.h). */
#ifndef LOCHI_POOL_SEGMENT_H
#define LOCHI_POOL_SEGMENT_H

#include "memory/pool/state/state.h"

/* Sizes of a segment for a request, in bytes. */
typedef struct pool_segment_size {
    size_t needed, wished; /* at least; better */
    size_t alignment;
    bool is_modest; /* takes nothing from other pools for it */
} pool_segment_size;

/* Makes the memory of a segment one free block of a lane at an epoch. `segment` has its memory, which is counted in the
 * limits. E_HOST_MEMORY: nothing has happened. */
loch_status lochi_pool_enter_segment(lochi_pool *pool, pool_handle *segment, pool_lane *lane, uint64_t epoch);
/* Takes a raw segment from the device. All of it becomes one free block of the lane. */
loch_status lochi_pool_take_segment(lochi_pool *pool, size_t bytes, size_t alignment, pool_lane *lane);
/* Makes a child's range its only segment, free in the order of the lane from now on. It is never given back. */
loch_status lochi_pool_adopt_range(lochi_pool *pool, size_t bytes, pool_lane *lane);
/* Gives a raw segment back. `block` is the free block that covers it. A segment of a source goes back when the locks
 * are dropped. */
loch_status lochi_pool_drop_segment(lochi_pool *pool, pool_handle *segment, pool_block *block);

#endif
