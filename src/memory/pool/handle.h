/* SPDX-License-Identifier: MIT */
/* A pool's physical memory, piece by piece: for place.c and growable.c. Everything is under the pool's lock. */
#ifndef LOCHI_POOL_HANDLE_H
#define LOCHI_POOL_HANDLE_H

#include "memory/pool/inside.h"

/* Whether the limit, and those of the family, allow `bytes` more: E_LIMIT. */
loch_status lochi_pool_check_limit(lochi_pool *pool, size_t bytes);

/* Makes sure that the cells of addresses exist. E_HOST_MEMORY. */
loch_status lochi_pool_make_cells(lochi_pool *pool, uintptr_t start, size_t bytes);

/* A part of a bare block becomes a block of its own, in no list. The caller has stocked two records. */
pool_block *lochi_pool_take_bare(lochi_pool *pool, pool_block *bare, uintptr_t start, size_t bytes);

/* Up to whole cells: a size, or an address. */
static inline size_t lochi_pool_round(const lochi_pool *pool, size_t bytes)
{
    return (bytes + pool->cell_bytes - 1) & ~(pool->cell_bytes - 1);
}

/* A new handle, not mapped yet, in the list of loose ones. */
loch_status lochi_pool_create_handle(lochi_pool *pool, size_t bytes, pool_handle **out);

/* The same, smaller where the device or the limit gives no more: not below a cell. */
loch_status lochi_pool_create_some(lochi_pool *pool, size_t bytes, pool_handle **out);

/* Maps a loose handle; the caller notes what lies there now. */
loch_status lochi_pool_map_loose(lochi_pool *pool, pool_handle *handle, uintptr_t at);

/* Maps a loose handle into a bare block; lochi_pool_settle makes it free. */
loch_status lochi_pool_map_free(lochi_pool *pool, pool_handle *handle, pool_block *bare, uintptr_t at, pool_lane *lane);

/* Whether free memory may be mapped elsewhere for `lane` now: nobody uses it, or `lane` alone and it can be mapped twice. */
bool lochi_pool_may_move(const lochi_pool *pool, const pool_block *block, const pool_lane *lane);

/* Takes a handle from under the free block that it lies wholly in into a bare one; lochi_pool_settle makes it free. The
 * lane has to be marked afterwards if the device maps twice. */
loch_status lochi_pool_move_free(lochi_pool *pool, pool_handle *handle, pool_block *block, pool_block *bare,
                                 uintptr_t at, pool_lane *lane);

/* Takes a handle back to an old address from the free block that it lies wholly in: no driver call. As above. */
loch_status lochi_pool_revive(lochi_pool *pool, pool_block *fading, pool_block *home, pool_lane *lane);

/* What was filled becomes free, what was left bare. */
void lochi_pool_settle(lochi_pool *pool);

/* Takes a handle from under a free block that nobody uses any more; it is loose then. */
loch_status lochi_pool_unmap_free(lochi_pool *pool, pool_handle *handle, pool_block *block);

/* Takes a handle from where the caller has mapped it; it is loose then. */
loch_status lochi_pool_unmap_loose(lochi_pool *pool, pool_handle *handle);

/* Gives a handle back to the device. E_BUSY while an old address of it fades. */
loch_status lochi_pool_destroy_free(lochi_pool *pool, pool_handle *handle, pool_block *block);
void lochi_pool_destroy_loose(lochi_pool *pool, pool_handle *handle);

/* Gives the memory of a handle back, and keeps its record and its addresses; and brings memory back to them. On failure
 * nothing has changed. */
loch_status lochi_pool_lay_down(lochi_pool *pool, pool_handle *handle);
loch_status lochi_pool_get_up(lochi_pool *pool, pool_handle *handle);
/* Forgets a handle that sleeps. */
void lochi_pool_forget_asleep(lochi_pool *pool, pool_handle *handle);

void lochi_pool_set_cells(lochi_pool *pool, uintptr_t start, size_t bytes, pool_handle *handle);

/* A raw segment, all of it one free block; and back. */
loch_status lochi_pool_take_segment(lochi_pool *pool, size_t bytes, pool_lane *lane);
/* A child's range as its only segment: free in the order of the lane from now on. It is never given back. */
loch_status lochi_pool_adopt_range(lochi_pool *pool, size_t bytes, pool_lane *lane);
loch_status lochi_pool_drop_segment(lochi_pool *pool, pool_handle *segment, pool_block *block);

#endif
