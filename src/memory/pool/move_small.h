/* SPDX-License-Identifier: MIT */
/* Small blocks that may move. */
#ifndef LOCHI_POOL_MOVE_SMALL_H
#define LOCHI_POOL_MOVE_SMALL_H

#include "memory/pool/state.h"
#include "memory/movable.h"

/* Notes the owner of a small block, where it can be moved at all. */
void lochi_pool_small_own(lochi_pool *pool, pool_slab *slab, lochi_movable *movable);
/* Forgets the owner of a small block, if it has one. */
void lochi_pool_small_disown(lochi_pool *pool, const pool_slab *slab, const pool_word *word);
/* Finds the small block of an owner, and its slab; NULL when it has none. */
pool_word *lochi_pool_small_find(const lochi_pool *pool, const lochi_movable *movable, pool_slab **slab);
/* Tells whether a small block can be moved now, as far as streams go as of the last compaction. */
bool lochi_pool_small_is_movable(const lochi_pool *pool, const pool_slab *slab, const pool_word *word);
/* Moves a small block into a closed slab of its lane and class, which has room and owners, on the stream of `lane`. On failure the
 * block is where it was; the target has ended if it had no other block. The block's slab ends with its last one. */
loch_status lochi_pool_small_move(lochi_pool *pool, pool_slab *slab, pool_word *word, pool_slab *target,
                                  pool_lane *lane);

#endif
