/* SPDX-License-Identifier: MIT */
/* A pool's physical memory, piece by piece. */
#ifndef LOCHI_POOL_HANDLE_H
#define LOCHI_POOL_HANDLE_H

#include "memory/pool/state.h"

/* Unmaps the oldest fading blocks whose event has passed, until `keep` are left or they hold no more than a quarter of the
 * addresses. They cost nothing else, and memory that goes back to an old address needs no driver call: programs that do
 * the same again and again need none after a while. */
void lochi_pool_drop_faded(lochi_pool *pool, size_t keep);
#define POOL_FADING_MAX 256

/* Checks whether the limit, and those of the family, allow `bytes` more: E_LIMIT. */
loch_status lochi_pool_check_limit(lochi_pool *pool, size_t bytes);
/* Checks the limits as lochi_pool_check_limit does, and counts the bytes in for the family: before the memory is there, so that
 * nobody else takes the room. */
loch_status lochi_pool_claim(lochi_pool *pool, size_t bytes);
/* Undoes lochi_pool_claim: the driver refused. */
void lochi_pool_unclaim(lochi_pool *pool, size_t bytes);
/* Counts a handle in that was claimed. */
void lochi_pool_count_handle(lochi_pool *pool, size_t bytes);
/* Counts a handle out that has gone. */
void lochi_pool_uncount_handle(lochi_pool *pool, size_t bytes);
/* Enters a handle in a list. */
static inline void lochi_pool_link_handle(pool_handle **list, pool_handle *handle)
{
    handle->prev = NULL;
    handle->next = *list;
    if (*list) (*list)->prev = handle;
    *list = handle;
}
/* Takes a handle out of its list. */
static inline void lochi_pool_unlink_handle(pool_handle **list, pool_handle *handle)
{
    if (handle->prev)
        handle->prev->next = handle->next;
    else
        *list = handle->next;
    if (handle->next) handle->next->prev = handle->prev;
}

/* Makes a part of a bare block a block of its own, in no list. The caller has stocked two records. */
pool_block *lochi_pool_take_bare(lochi_pool *pool, pool_block *bare, uintptr_t start, size_t bytes);
/* Creates a handle, not mapped yet, in the list of loose ones: smaller where the device or the limit gives no more, but not below
 * a cell. */
loch_status lochi_pool_create_some(lochi_pool *pool, size_t bytes, pool_handle **out);
/* Maps a loose handle; the caller notes what lies there now. */
loch_status lochi_pool_map_loose(lochi_pool *pool, pool_handle *handle, uintptr_t at);
/* Maps a loose handle into a bare block; lochi_pool_settle makes it free. */
loch_status lochi_pool_map_free(lochi_pool *pool, pool_handle *handle, pool_block *bare, uintptr_t at, pool_lane *lane);
/* Unmaps a handle from where the caller has mapped it; it is loose then. */
loch_status lochi_pool_unmap_loose(lochi_pool *pool, pool_handle *handle);
/* Unmaps a handle from under a free block that nobody uses any more; it is loose then. */
loch_status lochi_pool_unmap_free(lochi_pool *pool, pool_handle *handle, pool_block *block);

/* Tells whether free memory may be mapped elsewhere for `lane` now: nobody uses it, or `lane` alone and it can be mapped twice. */
bool lochi_pool_may_move(const lochi_pool *pool, const pool_block *block, const pool_lane *lane);
/* Takes a handle from under the free block that it lies wholly in into a bare one; lochi_pool_settle makes it free. The
 * lane has to be marked afterwards if the device maps twice. */
loch_status lochi_pool_move_free(lochi_pool *pool, pool_handle *handle, pool_block *block, pool_block *bare,
                                 uintptr_t at, pool_lane *lane);
/* Takes a handle back to an old address from the free block that it lies wholly in: no driver call. Settled and marked as by
 * lochi_pool_move_free. */
loch_status lochi_pool_revive(lochi_pool *pool, pool_block *fading, pool_block *home, pool_lane *lane);
/* Makes free what was filled, and bare what was left. */
void lochi_pool_settle(lochi_pool *pool);

/* Gives a handle under a free block back to the device. E_BUSY while an old address of it fades. */
loch_status lochi_pool_destroy_free(lochi_pool *pool, pool_handle *handle, pool_block *block);
/* Gives a loose handle back to the device. */
void lochi_pool_destroy_loose(lochi_pool *pool, pool_handle *handle);
/* Gives all handles and addresses of a pool that ends back, whatever lies in them. */
void lochi_pool_drop_all(lochi_pool *pool);

/* Gives the memory of a handle back, and keeps its record and its addresses. On failure nothing has changed. */
loch_status lochi_pool_lay_down(lochi_pool *pool, pool_handle *handle);
/* Brings memory back to the addresses of a handle that sleeps. On failure nothing has changed. */
loch_status lochi_pool_get_up(lochi_pool *pool, pool_handle *handle);
/* Forgets a handle that sleeps. */
void lochi_pool_forget_asleep(lochi_pool *pool, pool_handle *handle);

#endif
