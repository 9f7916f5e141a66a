/* SPDX-License-Identifier: MIT */
/* Small blocks. */
#ifndef LOCHI_POOL_SLAB_H
#define LOCHI_POOL_SLAB_H

#include "memory/pool/state/state.h"

/* The entry of the table of pages for page `index` of a slab of a class that has ended. A slab can be made there again
 * (exact.c). It is never the mark of a freed block. */
#define POOL_SLAB_MARK(class, index) ((uintptr_t)((class) + 1) << 16 | (uintptr_t)(index) << 24 | POOL_IS_FREED)
#define POOL_SLAB_MARK_CLASS(page) ((uint32_t)((page) >> 16 & 0xff) - 1)
#define POOL_SLAB_MARK_INDEX(page) ((page) >> 24)

/* Returns the alignment of the slabs of a class. In a pool of graphs it is the size of the slab, so that an address and
 * a class have one slab only: a block can always come back to an address that it had (exact.c). Elsewhere slabs are
 * packed more tightly. */
static inline size_t lochi_pool_slab_alignment(const lochi_pool *pool, uint32_t class)
{
    return pool->is_of_graphs ? pool->slab_bytes[class] : POOL_PAGE;
}

/* Computes the classes of a new pool. */
void lochi_pool_lay_out_classes(lochi_pool *pool);
/* Frees all slab records of a pool that ends. */
void lochi_pool_close_slabs(lochi_pool *pool);

/* Takes a slab record; NULL without host memory. */
pool_slab *lochi_pool_slab_take_record(lochi_pool *pool, uint32_t class);
/* Gives back a slab record that was not used. */
void lochi_pool_slab_keep_record(lochi_pool *pool, pool_slab *slab);
/* Cuts a block in use, whose pages are entered, into small blocks for a lane. */
void lochi_pool_slab_make(lochi_pool *pool, pool_slab *slab, pool_lane *lane, pool_block *block);
/* Cuts a block that is in no list into small blocks for a freeze: makes a closed slab with a table of owners.
 * Returns NULL with the status on failure; the block is unchanged then. */
pool_slab *lochi_pool_slab_make_closed(lochi_pool *pool, pool_lane *lane, uint32_t class, pool_block *block,
                                       loch_status *status);
/* Makes the table of owners of a slab. Returns false without host memory. */
bool lochi_pool_small_prepare(pool_slab *slab);

/* Returns the table of ids of a slab, after making it if there is none; NULL without host memory. */
pool_id *lochi_pool_slab_ids(pool_slab *slab);

/* Returns a slab of a lane with a free block of a class; NULL for none. Empty slabs come last. */
pool_slab *lochi_pool_slab_find(const pool_lane *lane, uint32_t class);
/* Takes up to `count` small blocks of a class from the slabs of a lane. Returns the number taken, which may be 0. */
size_t lochi_pool_slab_take(pool_lane *lane, uint32_t class, pool_entry *out, size_t count);
/* Takes a small block out of a slab that has a free one. */
pool_entry lochi_pool_slab_pop(pool_slab *slab);
/* Takes the small block with a number out of an open slab. Returns false if it is not free. */
bool lochi_pool_slab_pick(pool_slab *slab, uint32_t index, pool_entry *out);
/* Ends a slab without a block in use, so that its memory is free. Returns false if it cannot end now. */
bool lochi_pool_slab_end(lochi_pool *pool, pool_slab *slab);
/* Returns a small block to its slab. The slab may end. */
void lochi_pool_slab_give(lochi_pool *pool, pool_slab *slab, pool_word *word);
/* Frees slabs without a block in use. Returns whether there was one. */
bool lochi_pool_slab_trim(lochi_pool *pool, pool_lane *lane);
/* Keeps all blocks of a slab from being taken, because its memory is asleep. */
void lochi_pool_slab_sleep(pool_slab *slab);
/* Undoes lochi_pool_slab_sleep. */
void lochi_pool_slab_wake(pool_slab *slab);

#endif
