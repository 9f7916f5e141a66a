/* SPDX-License-Identifier: MIT */
/* Movable large blocks. memory/movable.h declares the functions for their owners. */
#ifndef LOCHI_POOL_MOVE_H
#define LOCHI_POOL_MOVE_H

#include "memory/pool/state/state.h"

/* Tells whether a block can be moved now. Uses the state of the streams as of the last compaction. */
bool lochi_pool_is_movable(const lochi_pool *pool, const pool_block *block);
/* Moves a block to `target` on the stream of `lane`. `target` was cut out of a free block and is in no list. On
 * failure the block stays where it was, and the target is free again. */
loch_status lochi_pool_move(lochi_pool *pool, pool_block *block, pool_block *target, pool_lane *lane);
/* Moves a block into the free memory right before it, which belongs to the lane. On failure the block stays where it
 * was, or is torn (move.c). */
loch_status lochi_pool_slide(lochi_pool *pool, pool_block *block, pool_lane *lane);
/* Copies the rest of a torn block on the stream of `lane`. On failure the block stays torn. E_BUSY for the lane of a
 * capture. */
loch_status lochi_pool_mend(lochi_pool *pool, pool_block *block, pool_lane *lane);
/* Mends all torn blocks. Returns the first failure. */
loch_status lochi_pool_mend_all(lochi_pool *pool, pool_lane *lane);
/* Removes the owner of a block that is being freed. */
void lochi_pool_disown(lochi_pool *pool, pool_block *block);

#endif
