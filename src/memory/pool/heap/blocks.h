/* SPDX-License-Identifier: MIT */
/* Large blocks: bins, cutting, merging, and walks over all blocks. */
#ifndef LOCHI_POOL_BLOCKS_H
#define LOCHI_POOL_BLOCKS_H

#include "memory/pool/heap/records.h"

/* A request, rounded. */
typedef struct pool_want {
    size_t bytes;     /* rounded up */
    size_t alignment; /* at least POOL_UNIT */
    pool_lane *lane;
    size_t paged_bytes; /* bytes whose pages get an entry: 1, or all of a slab */
    uintptr_t at;       /* the address that the request is for; 0 for any */
} pool_want;

#define POOL_WHOLE_SLACK ((size_t)1 << 20)

/* Tells whether a block may be handed out uncut for `bytes`: a big block exceeds them by less than POOL_WHOLE_SLACK. */
static inline bool lochi_pool_is_near(const pool_block *block, size_t bytes)
{
    return block->bytes <= POOL_WHOLE_BIG || block->bytes - bytes < POOL_WHOLE_SLACK;
}

/* Enters a free block in the bin of its size. */
void lochi_pool_bins_add(pool_bins *bins, pool_block *block);
/* Takes a block out of its bin. */
void lochi_pool_bins_remove(pool_bins *bins, pool_block *block);
/* Finds the block that fits best, among whole pieces or among all others; NULL for none. Of equal blocks it is the one
 * at the lowest address, in pools with a source the one in the oldest segment. */
pool_block *lochi_pool_bins_fit(const lochi_pool *pool, const pool_bins *bins, size_t bytes, size_t alignment,
                                bool is_piece);
/* Finds the first block of the largest non-empty bin at or below `*bin`, and lowers `*bin` to it; NULL for none.
 * To walk from large to small, start with POOL_BINS - 1, follow list_next, then call again with the bin less 1. */
pool_block *lochi_pool_bins_below(const pool_bins *bins, int *bin);
/* Finds the first block of the bin of `bytes`, or of the smallest non-empty bin above it, and sets `*bin`. For 0 bytes,
 * starts with bin `*bin`. NULL for none. */
pool_block *lochi_pool_bins_from(const pool_bins *bins, size_t bytes, unsigned *bin);
/* Returns the size of the largest piece that a stream can get without a driver call. */
size_t lochi_pool_find_largest(const lochi_pool *pool);

/* Cuts a block in two at an address inside it. Uses a record that the caller has stocked. Returns the second part. */
pool_block *lochi_pool_split(lochi_pool *pool, pool_block *block, uintptr_t at);
/* Cuts `bytes` at `start` out of a free block. The parts before and behind stay free. E_HOST_MEMORY. */
loch_status lochi_pool_cut(lochi_pool *pool, pool_block *block, uintptr_t start, size_t bytes);
/* Cuts a request out of the free block of a lane that fits best. Returns NULL if none fits, or if *status is not
 * LOCH_OK. */
pool_block *lochi_pool_fit(lochi_pool *pool, pool_lane *lane, const pool_want *want, loch_status *status);
/* Cuts a request out of a free block that it fits in. Returns NULL if *status is not LOCH_OK. */
pool_block *lochi_pool_fit_in(lochi_pool *pool, pool_block *block, const pool_want *want, loch_status *status);
/* Cuts a request out of the arena of a lane that fits best. Returns NULL if none fits, or if *status is not LOCH_OK. */
pool_block *lochi_pool_fit_arena(lochi_pool *pool, pool_lane *lane, const pool_want *want, loch_status *status);

/* Makes a cut block an arena. */
void lochi_pool_make_arena(lochi_pool *pool, pool_block *block);
/* Makes a block free in the order of its lane, at `epoch`, and merges it with its neighbours. Returns the merged
 * block. A block in an annex waits for `epoch` instead, and then its memory goes. */
pool_block *lochi_pool_make_free(lochi_pool *pool, pool_block *block, uint64_t epoch);
/* Makes addresses unmapped whose memory is gone, and merges them. Returns the merged block. */
pool_block *lochi_pool_make_unmapped(lochi_pool *pool, pool_block *block);
/* Makes free memory that is asleep dormant: in no list, merged with dormant neighbours of its lane. Returns the
 * merged block. */
pool_block *lochi_pool_make_dormant(lochi_pool *pool, pool_block *block);
/* Takes a free block out of its bin, and updates the figures of whole pieces. */
void lochi_pool_unbin(lochi_pool *pool, pool_block *block);
/* Enters a free block in its bin, and updates the figures of whole pieces. */
void lochi_pool_rebin(lochi_pool *pool, pool_block *block);
/* Takes a free block out of its bin for a driver call: it is detached, and in a list of the caller. */
void lochi_pool_hold(lochi_pool *pool, pool_block *block, pool_block **list);
/* Makes a block free again that lochi_pool_hold took, as it was before. Returns the merged block. */
pool_block *lochi_pool_put_back(lochi_pool *pool, pool_block *block);
/* Gives a free block to another lane, at an epoch of that lane that is ordered after all uses. Returns the merged
 * block. */
pool_block *lochi_pool_adopt(lochi_pool *pool, pool_block *block, pool_lane *lane, uint64_t epoch);
/* Gives an idle free block to another lane. Returns the merged block. */
pool_block *lochi_pool_hand_over(lochi_pool *pool, pool_block *block, pool_lane *lane);

/* Merges the free blocks from `block` to the one that ends at or behind `end`, for a lane. Blocks of other lanes must
 * be idle. Returns the merged block, which belongs to the lane and to no arena. */
pool_block *lochi_pool_join_for(lochi_pool *pool, pool_block *block, uintptr_t end, pool_lane *lane);

/* Returns the block behind `block`: the first one for NULL, NULL at the end. Blocks come in order of address, except
 * that raw segments are in any order. */
pool_block *lochi_pool_next_block(const lochi_pool *pool, const pool_block *block);
/* Makes free pieces of at most `max_bytes` ordinary free memory. */
void lochi_pool_join_pieces(lochi_pool *pool, size_t max_bytes);
/* Merges idle free neighbours of different lanes, and free memory of arenas with the memory around it where a handle
 * becomes idle by that. Then the handle can be remapped or given back. Other arenas stay: their free memory serves
 * small requests, which would make new arenas elsewhere and occupy further handles. */
void lochi_pool_join_lanes(lochi_pool *pool);
/* Merges as lochi_pool_join_lanes does, and makes free memory of all arenas ordinary free memory, for a request that
 * fits nowhere else. */
void lochi_pool_join_all(lochi_pool *pool);
/* Lists the handles that were idle before the pool became obedient. Frees list those that become idle later. */
void lochi_pool_list_handles(lochi_pool *pool);

#endif
