/* SPDX-License-Identifier: MIT */
/* A pool's physical memory, handle by handle. Both locks are held, unless a function says otherwise. Functions that
 * make a driver call about memory go outside the pool's lock for it (outside.h). */
#ifndef LOCHI_POOL_HANDLE_H
#define LOCHI_POOL_HANDLE_H

#include "memory/pool/state/state.h"

/* Unmaps the oldest stale mappings whose event has passed, until `keep` are left or they use at most a quarter of the
 * addresses. A stale mapping costs only addresses, and a handle returns to its old address without a driver call. So
 * a program that repeats the same work needs no driver calls after a while. */
void lochi_pool_drop_stale(lochi_pool *pool, size_t keep);
#define POOL_STALE_MAX 256

/* Unmaps a stale mapping whose event has passed. */
loch_status lochi_pool_unmap_stale(lochi_pool *pool, pool_block *block);

/* Checks that the limits of the pool and its family allow `bytes` more. E_LIMIT. */
loch_status lochi_pool_check_limit(lochi_pool *pool, size_t bytes);
/* Checks the limits as lochi_pool_check_limit does, and counts the bytes in the family. Called before the memory
 * exists, so that no other pool takes the room. */
loch_status lochi_pool_claim(lochi_pool *pool, size_t bytes);
/* Undoes lochi_pool_claim after the driver refused. */
void lochi_pool_unclaim(lochi_pool *pool, size_t bytes);
/* Counts in a handle whose bytes were claimed. */
void lochi_pool_count_handle(lochi_pool *pool, size_t bytes);
/* Counts out a handle that went back to the device. */
void lochi_pool_uncount_handle(lochi_pool *pool, size_t bytes);
/* Enters a handle in a list. */
static inline void lochi_pool_link_handle(pool_handle **list, pool_handle *handle)
{
    handle->prev = NULL;
    handle->next = *list;
    if (*list) (*list)->prev = handle;
    *list = handle;
}
/* Takes a handle out of its list. Whether it is idle is unknown then. */
static inline void lochi_pool_unlink_handle(pool_handle **list, pool_handle *handle)
{
    lochi_pool_unlist_idle(&handle->idle, 0);
    if (handle->prev)
        handle->prev->next = handle->next;
    else
        *list = handle->next;
    if (handle->next) handle->next->prev = handle->prev;
}

/* Cuts a part of an unmapped range out of it. The result is in no list. The caller has stocked two records. */
pool_block *lochi_pool_take_unmapped(lochi_pool *pool, pool_block *unmapped, uintptr_t start, size_t bytes);
/* Cuts a part of an unmapped range out of it, for memory that will be mapped there. It is detached from now on;
 * lochi_pool_settle makes it unmapped again. E_HOST_MEMORY. */
loch_status lochi_pool_hold_unmapped(lochi_pool *pool, pool_block *unmapped, uintptr_t start, size_t bytes,
                                     pool_block **out);
/* Cuts held addresses behind their first `bytes`. `*rest` is the second part; NULL for none. E_HOST_MEMORY. */
loch_status lochi_pool_cut_held(lochi_pool *pool, pool_block *block, size_t bytes, pool_block **rest);
/* Cuts the part of a free block that a handle lies under out of it, so that the handle can move. It is detached from
 * now on; lochi_pool_settle makes it free again. E_HOST_MEMORY. */
loch_status lochi_pool_hold_handle(lochi_pool *pool, const pool_handle *handle, pool_block *block, pool_block **out);
/* Creates an unmapped handle of `bytes`, or a smaller one, of at least a cell, if there is no more. */
loch_status lochi_pool_create_some(lochi_pool *pool, size_t bytes, pool_handle **out);
/* Maps an unmapped handle. The caller enters the blocks that lie there. */
loch_status lochi_pool_map_handle(lochi_pool *pool, pool_handle *handle, uintptr_t at);
/* Enters a handle that was mapped at held addresses of its size. lochi_pool_settle makes the memory free. */
void lochi_pool_fill(lochi_pool *pool, pool_handle *handle, pool_block *target, pool_lane *lane);
/* Unmaps a handle that the caller has mapped. The handle becomes unmapped. */
loch_status lochi_pool_unmap_handle(lochi_pool *pool, pool_handle *handle);
/* Unmaps a handle from under an idle free block. The handle becomes unmapped. */
loch_status lochi_pool_unmap_free(lochi_pool *pool, pool_handle *handle, pool_block *block);

/* Tells whether free memory may be remapped for `lane` now: it is idle, or only `lane` uses it and the device can
 * map it twice. */
bool lochi_pool_may_move(const lochi_pool *pool, const pool_block *block, const pool_lane *lane);
/* Remaps a handle from the block that lochi_pool_hold_handle returned to held addresses of its size. lochi_pool_settle
 * makes the memory free. If the device maps twice, the caller must mark the lane afterwards. */
loch_status lochi_pool_move_free(lochi_pool *pool, pool_handle *handle, pool_block *held, pool_block *target,
                                 pool_lane *lane);
/* Returns a handle to an old address from the free block that it lies wholly in, without a driver call. Settle and
 * mark as for lochi_pool_move_free. */
loch_status lochi_pool_revive(lochi_pool *pool, pool_block *stale, pool_block *home, pool_lane *lane);
/* Makes filled blocks free, vacated and unused addresses unmapped, and held memory free again, after a plan. Returns
 * the block that has the address `at`, if it became free; otherwise NULL. */
pool_block *lochi_pool_settle(lochi_pool *pool, uintptr_t at);

/* Gives a handle under a free block back to the device. E_BUSY while an old address of it becomes stale. */
loch_status lochi_pool_destroy_free(lochi_pool *pool, pool_handle *handle, pool_block *block);
/* Gives the handles under the first `count` filled blocks back, because the request that they were created for has
 * failed. Keeps the error record. */
void lochi_pool_destroy_filled(lochi_pool *pool, size_t count);
/* Gives an unmapped handle back to the device. */
void lochi_pool_destroy_handle(lochi_pool *pool, pool_handle *handle);
/* Sets a segment aside that goes back to the source of the pool when the locks are dropped (source.c). */
void lochi_pool_set_aside(lochi_pool *pool, pool_handle *segment);
/* Gives all handles and addresses of a pool that ends back, whatever lies in them. */
void lochi_pool_drop_all(lochi_pool *pool);

/* Gives the memory of a handle back, and keeps its record and addresses. On failure nothing has changed. */
loch_status lochi_pool_lay_down(lochi_pool *pool, pool_handle *handle);
/* Maps new memory at the addresses of a sleeping handle. On failure nothing has changed. */
loch_status lochi_pool_get_up(lochi_pool *pool, pool_handle *handle);
/* Joins a sleeping handle with the sleeping handle behind it, whose record is freed. Both have one nap. */
void lochi_pool_join_asleep(lochi_pool *pool, pool_handle *handle, pool_handle *behind);
/* Removes the record of a sleeping handle. */
void lochi_pool_forget_asleep(lochi_pool *pool, pool_handle *handle);

#endif
