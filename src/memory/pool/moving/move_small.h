/* SPDX-License-Identifier: MIT */
/* Movable small blocks. */
#ifndef LOCHI_POOL_MOVE_SMALL_H
#define LOCHI_POOL_MOVE_SMALL_H

#include "memory/pool/state/state.h"
#include "memory/movable.h"

/* Sets the owner of a small block, if the block can be moved at all. */
void lochi_pool_small_own(lochi_pool *pool, pool_slab *slab, lochi_movable *movable);
/* Removes the owner of a small block, if it has one. */
void lochi_pool_small_disown(lochi_pool *pool, const pool_slab *slab, const pool_word *word);
/* Finds the small block of an owner, and its slab; NULL for none. */
pool_word *lochi_pool_small_find(const lochi_pool *pool, const lochi_movable *movable, pool_slab **slab);
/* Tells whether a small block can be moved now. Uses the state of the streams as of the last compaction. */
bool lochi_pool_small_is_movable(const lochi_pool *pool, const pool_slab *slab, const pool_word *word);
/* Moves a small block on the stream of `lane` into a closed slab of its lane and class, which has room and a table
 * of owners. On failure the block stays where it was; the target ends if it has no other block. The old slab ends
 * with its last block. */
loch_status lochi_pool_small_move(lochi_pool *pool, pool_slab *slab, pool_word *word, pool_slab *target,
                                  pool_lane *lane);

#endif
