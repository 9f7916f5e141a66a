/* SPDX-License-Identifier: MIT */
/* A pool's handles: counts them in the limits, creates, maps, moves and destroys them, and puts them to sleep.
 * place.c decides where memory goes. */
#include "memory/pool/handle.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/heap.h"
#include "base/logging.h"
#include "memory/pool/cells.h"
#include "memory/pool/family.h"
#include "memory/pool/heap.h"
#include "memory/pool/poison.h"
#include "memory/pool/refuse.h"
#include "memory/pool/reserve.h"

/* --- counting --- */

void lochi_pool_count_handle(lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    pool->reserved += bytes;
    if (pool->reserved > pool->peak_reserved) pool->peak_reserved = pool->reserved;
    lochi_pool_widen_table(pool);
    pool->handles_count++;
    pool->handles_created++;
    pool->batch = (int64_t)(pool->reserved >> 8) + ((int64_t)256 << 10);
}

void lochi_pool_uncount_handle(lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    pool->reserved -= bytes;
    pool->handles_count--;
    pool->handles_released++;
    if (pool->is_related) lochi_family_unclaim(pool, bytes);
}

loch_status lochi_pool_check_limit(lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    if (pool->is_related) return bytes <= lochi_family_room(pool) ? LOCH_OK : lochi_pool_fail_limit(pool, bytes);
    if (!pool->limit || (bytes <= pool->limit && pool->reserved <= pool->limit - bytes)) return LOCH_OK;
    return lochi_pool_fail_limit(pool, bytes);
}

loch_status lochi_pool_claim(lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    if (!pool->is_related) return lochi_pool_check_limit(pool, bytes);
    return lochi_family_claim(pool, bytes) ? LOCH_OK : lochi_pool_fail_limit(pool, bytes);
}

void lochi_pool_unclaim(lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    if (pool->is_related) lochi_family_unclaim(pool, bytes);
}

/* --- blocks under which memory comes or goes --- */

pool_block *lochi_pool_take_bare(lochi_pool *pool, pool_block *bare, uintptr_t start, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_bins_remove(&pool->bare, bare);
    if (start > bare->start) {
        pool_block *front = bare;
        bare = lochi_pool_split(pool, front, start);
        lochi_pool_bins_add(&pool->bare, front);
    }
    if (bare->bytes > bytes) lochi_pool_bins_add(&pool->bare, lochi_pool_split(pool, bare, start + bytes));
    return bare;
}

static void handle_settle_later(lochi_pool *pool, pool_block *block, pool_lane *lane, uint64_t epoch)
{
    block->lane = lane;
    block->is_captured = lane->capture != 0;
    lochi_pool_set_epoch(block, epoch);
    lochi_pool_set_state(block, POOL_USED);
    lochi_pool_enlist(&pool->filled, block);
}

/* Enters a handle under part of a bare block. lochi_pool_settle makes that memory free, and the addresses that the
 * handle left bare, when all moves of a plan are done. Until then no record of a neighbour disappears by merging. */
static void handle_fill(lochi_pool *pool, pool_handle *handle, pool_block *bare, uintptr_t at, pool_lane *lane,
                        uint64_t epoch)
{
    handle->at = at;
    lochi_pool_set_cells(pool, at, handle->bytes, handle);
    lochi_pool_hide(pool, at, handle->bytes);
    handle_settle_later(pool, lochi_pool_take_bare(pool, bare, at, handle->bytes), lane, epoch);
}

static void handle_fade(lochi_pool *pool, pool_block *block)
{
    block->list_next = NULL;
    block->list_link = pool->fading_end;
    *pool->fading_end = block;
    pool->fading_end = &block->list_next;
    pool->fading_count++;
    pool->fading_bytes += block->bytes;
}

static void handle_unfade(lochi_pool *pool, pool_block *block)
{
    if (!block->list_next) pool->fading_end = block->list_link;
    lochi_pool_unlist(block);
    pool->fading_count--;
    pool->fading_bytes -= block->bytes;
}

void lochi_pool_settle(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    while (pool->filled) {
        pool_block *block = pool->filled;
        lochi_pool_unlist(block);
        lochi_pool_make_free(pool, block, lochi_pool_epoch(block));
    }
    while (pool->vacated) {
        pool_block *block = pool->vacated;
        lochi_pool_unlist(block);
        lochi_pool_make_bare(pool, block);
    }
}

/* Gets the host memory that mapping at an address needs. */
static loch_status handle_prepare(lochi_pool *pool, uintptr_t at, size_t bytes)
{
    if (!lochi_pool_stock_records(pool, 6)) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    return lochi_pool_make_cells(pool, at, bytes);
}

/* --- creating and mapping --- */

static loch_status handle_create(lochi_pool *pool, size_t bytes, pool_handle **out)
{
    pool_handle *handle = lochi_zalloc(sizeof *handle);
    if (!handle) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a handle");
    const loch_handle_options *options = pool->options.handle.size ? &pool->options.handle : NULL;
    loch_status status = lochi_pool_claim(pool, bytes);
    if (status == LOCH_OK) {
        status = loch_handle_create(pool->device, bytes, options, &handle->handle);
        if (status != LOCH_OK) lochi_pool_unclaim(pool, bytes);
    }
    if (status != LOCH_OK) {
        lochi_free(handle);
        return status;
    }
    handle->bytes = bytes;
    lochi_pool_count_handle(pool, bytes);
    lochi_pool_link_handle(&pool->loose, handle);
    pool->loose_bytes += bytes;
    *out = handle;
    return LOCH_OK;
}

loch_status lochi_pool_create_some(lochi_pool *pool, size_t bytes, pool_handle **out)
{
    lochi_lock_assert_held(&pool->lock);
    loch_status status = handle_create(pool, bytes, out);
    while ((status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT) && bytes > pool->cell_bytes) {
        bytes = lochi_pool_round(pool, bytes / 2);
        status = handle_create(pool, bytes, out);
    }
    return status;
}

loch_status lochi_pool_map_loose(lochi_pool *pool, pool_handle *handle, uintptr_t at)
{
    lochi_lock_assert_held(&pool->lock);
    LOCH_TRY_RETURN(handle_prepare(pool, at, handle->bytes));
    LOCH_TRY_RETURN(loch_virtual_map((void *)at, handle->handle, pool->peers, pool->peers_count));
    lochi_pool_unlink_handle(&pool->loose, handle);
    pool->loose_bytes -= handle->bytes;
    lochi_pool_link_handle(&pool->handles, handle);
    handle->mappings = 1;
    return LOCH_OK;
}

loch_status lochi_pool_map_free(lochi_pool *pool, pool_handle *handle, pool_block *bare, uintptr_t at, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    LOCH_TRY_RETURN(lochi_pool_map_loose(pool, handle, at));
    handle_fill(pool, handle, bare, at, lane, 0);
    return LOCH_OK;
}

/* Cuts the part of a free block that a handle lies under out of it. The result is in no list. */
static pool_block *handle_cut_free(lochi_pool *pool, pool_block *block, const pool_handle *handle)
{
    pool_lane *lane = block->lane;
    lochi_pool_bins_remove(&lane->bins, block);
    if (handle->at > block->start) {
        pool_block *front = block;
        block = lochi_pool_split(pool, front, handle->at);
        lochi_pool_bins_add(&lane->bins, front);
    }
    if (block->bytes > handle->bytes)
        lochi_pool_bins_add(&lane->bins, lochi_pool_split(pool, block, handle->at + handle->bytes));
    return block;
}

/* Cuts the part of a free block that a handle lies under out of it. The result is in no list and does not merge. */
static pool_block *handle_detach(lochi_pool *pool, pool_block *block, const pool_handle *handle)
{
    lochi_pool_set_cells(pool, handle->at, handle->bytes, NULL);
    block = handle_cut_free(pool, block, handle);
    lochi_pool_set_state(block, POOL_FADING);
    return block;
}

/* Unmaps a handle with one mapping. The handle becomes loose. */
static loch_status handle_unmap(lochi_pool *pool, pool_handle *handle)
{
    lochi_pool_show(pool, handle->at, handle->bytes);
    LOCH_TRY_RETURN(loch_virtual_unmap((void *)handle->at));
    handle->mappings = 0;
    lochi_pool_unlink_handle(&pool->handles, handle);
    lochi_pool_link_handle(&pool->loose, handle);
    pool->loose_bytes += handle->bytes;
    return LOCH_OK;
}

loch_status lochi_pool_unmap_loose(lochi_pool *pool, pool_handle *handle)
{
    lochi_lock_assert_held(&pool->lock);
    LOCH_TRY_RETURN(handle_unmap(pool, handle));
    lochi_pool_set_cells(pool, handle->at, handle->bytes, NULL);
    return LOCH_OK;
}

loch_status lochi_pool_unmap_free(lochi_pool *pool, pool_handle *handle, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    if (handle->mappings > 1) return LOCH_FAIL(BUSY, "an old address of the memory is still in use");
    if (!lochi_pool_stock_records(pool, 4)) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    LOCH_TRY_RETURN(handle_unmap(pool, handle));
    lochi_pool_make_bare(pool, handle_detach(pool, block, handle));
    return LOCH_OK;
}

/* --- moving --- */

bool lochi_pool_may_move(const lochi_pool *pool, const pool_block *block, const pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    if (lochi_pool_has_passed(block->lane, lochi_pool_epoch(block))) return true;
    return block->lane == lane && loch_device_can(pool->device, LOCH_CAN_ALIAS);
}

/* Maps a handle a second time. The old mapping fades. */
static loch_status handle_alias(lochi_pool *pool, pool_handle *handle, pool_block *block, pool_block *bare,
                                uintptr_t at, pool_lane *lane)
{
    const bool has_passed = lochi_pool_has_passed(block->lane, lochi_pool_epoch(block));
    const uint64_t epoch = lochi_pool_epoch(block);
    LOCH_TRY_RETURN(loch_virtual_map((void *)at, handle->handle, pool->peers, pool->peers_count));
    pool_block *old = handle_detach(pool, block, handle);
    old->handle = handle;
    /* The lane's stream may still use the old address: the present epoch has to pass. */
    lochi_pool_set_epoch(old, has_passed ? 0 : old->lane->epoch);
    handle_fade(pool, old);
    handle->mappings++;
    handle_fill(pool, handle, bare, at, lane, has_passed ? 0 : epoch);
    return LOCH_OK;
}

loch_status lochi_pool_revive(lochi_pool *pool, pool_block *fading, pool_block *home, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    if (!lochi_pool_stock_records(pool, 4)) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    pool_handle *handle = fading->handle;
    const bool has_passed = lochi_pool_has_passed(home->lane, lochi_pool_epoch(home));
    const uint64_t epoch = lochi_pool_epoch(home);
    pool_block *old = handle_detach(pool, home, handle);
    old->handle = handle;
    lochi_pool_set_epoch(old, has_passed ? 0 : old->lane->epoch);
    handle_fade(pool, old);
    handle_unfade(pool, fading);
    fading->slab = NULL;
    handle->at = fading->start;
    lochi_pool_set_cells(pool, fading->start, fading->bytes, handle);
    handle_settle_later(pool, fading, lane, has_passed ? 0 : epoch);
    pool->handles_revived++;
    return LOCH_OK;
}

/* Unmaps a handle, then maps it at the new address. */
static loch_status handle_transfer(lochi_pool *pool, pool_handle *handle, pool_block *block, pool_block *bare,
                                   uintptr_t at, pool_lane *lane)
{
    const uintptr_t from = handle->at;
    if (loch_device_can(pool->device, LOCH_CAN_REMAP)) {
        lochi_pool_show(pool, from, handle->bytes);
        LOCH_TRY_RETURN(loch_virtual_remap((void *)from, (void *)at));
    } else {
        LOCH_TRY_RETURN(handle_unmap(pool, handle));
        const loch_status status = lochi_pool_map_loose(pool, handle, at);
        if (status != LOCH_OK) { /* the handle is loose now and serves the next request */
            lochi_pool_enlist(&pool->vacated, handle_detach(pool, block, handle));
            return status;
        }
    }
    handle->at = from;
    lochi_pool_enlist(&pool->vacated, handle_detach(pool, block, handle));
    handle_fill(pool, handle, bare, at, lane, 0);
    return LOCH_OK;
}

loch_status lochi_pool_move_free(lochi_pool *pool, pool_handle *handle, pool_block *block, pool_block *bare,
                                 uintptr_t at, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    LOCH_TRY_RETURN(handle_prepare(pool, at, handle->bytes));
    LOCH_TRY_RETURN(loch_device_can(pool->device, LOCH_CAN_ALIAS)
                        ? handle_alias(pool, handle, block, bare, at, lane)
                        : handle_transfer(pool, handle, block, bare, at, lane));
    pool->handles_moved++;
    return LOCH_OK;
}

void lochi_pool_drop_faded(lochi_pool *pool, size_t keep)
{
    lochi_lock_assert_held(&pool->lock);
    for (pool_block *block = pool->fading, *next; block; block = next) {
        if (pool->fading_count <= keep && pool->fading_bytes <= pool->span / 4) return;
        next = block->list_next;
        if (!lochi_pool_has_passed(block->lane, lochi_pool_epoch(block))) continue;
        if (loch_virtual_unmap((void *)block->start) != LOCH_OK) continue; /* tried again later */
        block->handle->mappings--;
        handle_unfade(pool, block);
        lochi_pool_make_bare(pool, block);
    }
}

/* --- giving back --- */

void lochi_pool_destroy_loose(lochi_pool *pool, pool_handle *handle)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_unlink_handle(&pool->loose, handle);
    pool->loose_bytes -= handle->bytes;
    lochi_pool_uncount_handle(pool, handle->bytes);
    loch_handle_destroy(handle->handle);
    lochi_free(handle);
}

loch_status lochi_pool_destroy_free(lochi_pool *pool, pool_handle *handle, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    if (handle->mappings > 1) return LOCH_FAIL(BUSY, "an old address of the memory is still in use");
    if (!lochi_pool_stock_records(pool, 4)) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    lochi_pool_show(pool, handle->at, handle->bytes);
    loch_handle_destroy(
        handle->handle); /* destroyed before it is unmapped, so that the CPU device need not save the pages */
    const loch_status status = loch_virtual_unmap((void *)handle->at);
    pool_block *old = handle_detach(pool, block, handle);
    if (status == LOCH_OK)
        lochi_pool_make_bare(pool, old);
    else /* these addresses are never used again */
        LOCHI_LOG(ERROR, "%s at %p are lost: %s", LOCHI_SIZE(handle->bytes), (void *)handle->at,
                  loch_error_get()->sentence);
    lochi_pool_unlink_handle(&pool->handles, handle);
    lochi_pool_uncount_handle(pool, handle->bytes);
    lochi_free(handle);
    return status;
}

/* --- sleeping --- */

loch_status lochi_pool_lay_down(lochi_pool *pool, pool_handle *handle)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_show(pool, handle->at, handle->bytes);
    LOCH_TRY_RETURN(
        loch_virtual_unmap((void *)handle->at)); /* first, because it may fail; the contents are kept then */
    loch_handle_destroy(handle->handle);
    handle->handle = NULL;
    handle->mappings = 0;
    lochi_pool_unlink_handle(&pool->handles, handle);
    lochi_pool_link_handle(&pool->asleep, handle);
    lochi_pool_uncount_handle(pool, handle->bytes);
    pool->asleep_bytes += handle->bytes;
    return LOCH_OK;
}

loch_status lochi_pool_get_up(lochi_pool *pool, pool_handle *handle)
{
    lochi_lock_assert_held(&pool->lock);
    LOCH_TRY_RETURN(lochi_pool_claim(pool, handle->bytes));
    const loch_handle_options *options = pool->options.handle.size ? &pool->options.handle : NULL;
    loch_status status = loch_handle_create(pool->device, handle->bytes, options, &handle->handle);
    if (status == LOCH_OK) {
        status = loch_virtual_map((void *)handle->at, handle->handle, pool->peers, pool->peers_count);
        if (status != LOCH_OK) loch_handle_destroy(handle->handle);
    }
    if (status != LOCH_OK) {
        handle->handle = NULL;
        lochi_pool_unclaim(pool, handle->bytes);
        return status;
    }
    handle->mappings = 1;
    lochi_pool_unlink_handle(&pool->asleep, handle);
    lochi_pool_link_handle(&pool->handles, handle);
    lochi_pool_count_handle(pool, handle->bytes);
    pool->asleep_bytes -= handle->bytes;
    lochi_pool_show(pool, handle->at, handle->bytes);
    return LOCH_OK;
}

void lochi_pool_forget_asleep(lochi_pool *pool, pool_handle *handle)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_show(pool, handle->at, handle->bytes); /* blocks freed during the sleep were hidden */
    lochi_pool_unlink_handle(&pool->asleep, handle);
    pool->asleep_bytes -= handle->bytes;
    lochi_free(handle);
}

/* --- the end --- */

void lochi_pool_drop_all(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    for (pool_block *block = pool->fading; block; block = block->list_next) {
        const loch_status status = loch_virtual_unmap((void *)block->start);
        if (status != LOCH_OK) LOCHI_LOG(ERROR, "a mapping cannot be removed: %s", loch_error_get()->sentence);
    }
    while (pool->loose)
        lochi_pool_destroy_loose(pool, pool->loose);
    while (pool->asleep)
        lochi_pool_forget_asleep(pool, pool->asleep);
    while (pool->handles) {
        pool_handle *handle = pool->handles;
        loch_status status = LOCH_OK;
        lochi_pool_show(pool, handle->at, handle->bytes);
        if (handle->handle) {
            loch_handle_destroy(handle->handle);
            status = loch_virtual_unmap((void *)handle->at);
        } else if (!pool->range) {
            lochi_ranges_let(handle->raw, NULL); /* the range stays in the table if the driver refuses */
            status = loch_raw_free(handle->raw);
        }
        if (status != LOCH_OK)
            LOCHI_LOG(ERROR, "%s are lost: %s", LOCHI_SIZE(handle->bytes), loch_error_get()->sentence);
        lochi_pool_unlink_handle(&pool->handles, handle);
        lochi_free(handle);
    }
}
