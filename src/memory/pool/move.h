/* SPDX-License-Identifier: MIT */
/* Large blocks that may move. memory/movable.h declares what their owners call. */
#ifndef LOCHI_POOL_MOVE_H
#define LOCHI_POOL_MOVE_H

#include "memory/pool/state.h"

/* Tells whether a block can be moved now, as far as streams go as of the last compaction. */
bool lochi_pool_is_movable(const lochi_pool *pool, const pool_block *block);
/* Moves a block to `target`, which was cut out of a free block and is in no list, on the stream of `lane`. On failure the block
 * is where it was, and the target is free again. */
loch_status lochi_pool_move(lochi_pool *pool, pool_block *block, pool_block *target, pool_lane *lane);
/* Moves a block into the free memory right before it, which is the lane's. On failure it is where it was, or torn (move.c). */
loch_status lochi_pool_slide(lochi_pool *pool, pool_block *block, pool_lane *lane);
/* Copies the rest of a torn block on the stream of `lane`; on failure it stays torn. E_BUSY for the lane of a capture. */
loch_status lochi_pool_mend(lochi_pool *pool, pool_block *block, pool_lane *lane);
/* Mends all blocks that are torn; returns the first failure. */
loch_status lochi_pool_mend_all(lochi_pool *pool, pool_lane *lane);
/* Forgets the owner of a block that is being freed. */
void lochi_pool_disown(lochi_pool *pool, pool_block *block);

#endif
