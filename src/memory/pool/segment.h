/* SPDX-License-Identifier: MIT */
/* Raw segments. Both locks are held; driver calls are made outside the pool's lock (outside.h). */
#ifndef LOCHI_POOL_SEGMENT_H
#define LOCHI_POOL_SEGMENT_H

#include "memory/pool/state.h"

/* Takes a raw segment. All of it becomes one free block of the lane. */
loch_status lochi_pool_take_segment(lochi_pool *pool, size_t bytes, pool_lane *lane);
/* Makes a child's range its only segment, free in the order of the lane from now on. It is never given back. */
loch_status lochi_pool_adopt_range(lochi_pool *pool, size_t bytes, pool_lane *lane);
/* Gives a raw segment back. `block` is the free block that covers it. */
loch_status lochi_pool_drop_segment(lochi_pool *pool, pool_handle *segment, pool_block *block);

#endif
