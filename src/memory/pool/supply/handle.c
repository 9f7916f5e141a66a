/* SPDX-License-Identifier: MIT */
/* A pool's handles: counts them in the limits, creates, maps, moves and destroys them, and puts them to sleep.
 * place.c decides where memory goes.
 *
 * Driver calls run outside the pool's lock (outside.h). The blocks that a call is about are detached meanwhile, in one
 * of three lists of the pool: `held` (free memory, with its lane and epoch), `vacated` (addresses) and `filled` (memory
 * that was mapped). lochi_pool_settle empties the lists, also after a call that failed. */
#include "memory/pool/supply/handle.h"
#include "base/fail.h"
#include "kit/text.h"
#include "base/heap.h"
#include "base/logging.h"
#include "device/virtual.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/limits/limits.h"
#include "memory/pool/state/state.h"
#include "memory/pool/supply/reserve.h"

/* --- counting --- */

void lochi_pool_count_handle(lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    pool->reserved += bytes;
    pool->room.bytes -= pool->room.bytes == SIZE_MAX ? 0 : bytes < pool->room.bytes ? bytes : pool->room.bytes;
    if (pool->reserved > pool->peak_reserved) pool->peak_reserved = pool->reserved;
    lochi_pool_widen_table(pool);
    pool->handles_count++;
    pool->counts.handles_created++;
    const size_t part = pool->reserved / 8;
    atomic_store_explicit(&pool->transfer_most,
                          part < POOL_TRANSFER_MIN   ? POOL_TRANSFER_MIN
                          : part > POOL_TRANSFER_MAX ? POOL_TRANSFER_MAX
                                                     : part,
                          memory_order_relaxed);
}

void lochi_pool_uncount_handle(lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    pool->reserved -= bytes;
    if (pool->room.bytes < SIZE_MAX - bytes) pool->room.bytes += bytes;
    pool->handles_count--;
    pool->counts.handles_released++;
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

pool_block *lochi_pool_take_unmapped(lochi_pool *pool, pool_block *unmapped, uintptr_t start, size_t bytes)
{
    lochi_pool_assert_both(pool);
    lochi_pool_bins_remove(pool->unmapped_ranges, unmapped);
    if (start > unmapped->start) {
        pool_block *front = unmapped;
        unmapped = lochi_pool_split(pool, front, start);
        lochi_pool_bins_add(pool->unmapped_ranges, front);
    }
    if (unmapped->bytes > bytes)
        lochi_pool_bins_add(pool->unmapped_ranges, lochi_pool_split(pool, unmapped, start + bytes));
    return unmapped;
}

loch_status lochi_pool_hold_unmapped(lochi_pool *pool, pool_block *unmapped, uintptr_t start, size_t bytes,
                                     pool_block **out)
{
    lochi_pool_assert_both(pool);
    if (!lochi_pool_stock_records(pool, 2)) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    LOCH_TRY_RETURN(lochi_pool_make_cells(pool, start, bytes));
    *out = lochi_pool_take_unmapped(pool, unmapped, start, bytes);
    lochi_pool_set_state(*out, POOL_DETACHED);
    lochi_pool_enlist(&pool->detached.vacated, *out);
    return LOCH_OK;
}

loch_status lochi_pool_cut_held(lochi_pool *pool, pool_block *block, size_t bytes, pool_block **rest)
{
    lochi_pool_assert_both(pool);
    *rest = NULL;
    if (block->bytes == bytes) return LOCH_OK;
    if (!lochi_pool_stock_records(pool, 1)) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    *rest = lochi_pool_split(pool, block, block->start + bytes);
    lochi_pool_enlist(&pool->detached.vacated, *rest);
    return LOCH_OK;
}

static void handle_settle_later(lochi_pool *pool, pool_block *block, pool_lane *lane, uint64_t epoch)
{
    block->lane = lane;
    block->is_captured = lane->capture != 0;
    lochi_pool_set_epoch(block, epoch);
    lochi_pool_set_state(block, POOL_DETACHED);
    lochi_pool_enlist(&pool->detached.filled, block);
}

/* Enters a handle at addresses that are detached. lochi_pool_settle makes that memory free, and the addresses that the
 * handle left unmapped, when all moves of a plan are done. */
static void handle_fill(lochi_pool *pool, pool_handle *handle, pool_block *target, pool_lane *lane, uint64_t epoch)
{
    handle->at = target->start;
    lochi_pool_set_cells(pool, handle->at, handle->bytes, handle);
    lochi_pool_hide(pool, handle->at, handle->bytes);
    lochi_pool_unlist(target);
    handle_settle_later(pool, target, lane, epoch);
}

static void handle_list_stale(lochi_pool *pool, pool_block *block)
{
    block->list_next = NULL;
    block->list_link = pool->stale.end;
    *pool->stale.end = block;
    pool->stale.end = &block->list_next;
    pool->stale.count++;
    pool->stale.bytes += block->bytes;
}

static void handle_unlist_stale(lochi_pool *pool, pool_block *block)
{
    if (!block->list_next) pool->stale.end = block->list_link;
    lochi_pool_unlist(block);
    pool->stale.count--;
    pool->stale.bytes -= block->bytes;
}

/* Notes the free block that has an address. */
static void handle_note_home(pool_block *block, uintptr_t at, pool_block **home)
{
    if (block->start <= at && at - block->start < block->bytes) *home = block;
}

pool_block *lochi_pool_settle(lochi_pool *pool, uintptr_t at)
{
    lochi_pool_assert_both(pool);
    pool_block *home = NULL;
    while (pool->detached.filled) {
        pool_block *block = pool->detached.filled;
        lochi_pool_unlist(block);
        handle_note_home(lochi_pool_make_free(pool, block, lochi_pool_epoch(block)), at, &home);
    }
    while (pool->detached.vacated) {
        pool_block *block = pool->detached.vacated;
        lochi_pool_unlist(block);
        lochi_pool_make_unmapped(pool, block);
    }
    while (pool->detached.held)
        handle_note_home(lochi_pool_put_back(pool, pool->detached.held), at, &home);
    return home;
}

/* --- creating and mapping --- */

loch_status lochi_pool_create_some(lochi_pool *pool, size_t bytes, pool_handle **out)
{
    lochi_pool_assert_both(pool);
    pool_handle *handle = lochi_zalloc(sizeof *handle);
    if (!handle) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a handle");
    const loch_handle_options *options = pool->options.handle.size ? &pool->options.handle : NULL;
    loch_status status;
    for (;; bytes = lochi_pool_round(pool, bytes / 2)) {
        status = lochi_pool_claim(pool, bytes);
        if (status == LOCH_OK) {
            lochi_pool_go_outside(pool);
            status = loch_handle_create(pool->device, bytes, options, &handle->handle);
            lochi_pool_come_back(pool);
            if (status != LOCH_OK) lochi_pool_unclaim(pool, bytes);
            if (status == LOCH_E_DEVICE_MEMORY) lochi_pool_doubt_room(pool);
        }
        if ((status != LOCH_E_DEVICE_MEMORY && status != LOCH_E_LIMIT) || bytes <= pool->cell_bytes) break;
    }
    if (status != LOCH_OK) {
        lochi_free(handle);
        return status;
    }
    handle->bytes = bytes;
    lochi_pool_count_handle(pool, bytes);
    lochi_pool_link_handle(&pool->unmapped_handles, handle);
    pool->unmapped_handle_bytes += bytes;
    *out = handle;
    return LOCH_OK;
}

loch_status lochi_pool_map_handle(lochi_pool *pool, pool_handle *handle, uintptr_t at)
{
    lochi_pool_assert_both(pool);
    LOCH_TRY_RETURN(lochi_pool_make_cells(pool, at, handle->bytes));
    lochi_pool_go_outside(pool);
    const loch_status status = loch_virtual_map((void *)at, handle->handle, pool->peers, pool->peers_count);
    lochi_pool_come_back(pool);
    if (status != LOCH_OK) return status;
    lochi_pool_unlink_handle(&pool->unmapped_handles, handle);
    pool->unmapped_handle_bytes -= handle->bytes;
    lochi_pool_link_handle(&pool->handles, handle);
    handle->mappings = 1;
    return LOCH_OK;
}

void lochi_pool_fill(lochi_pool *pool, pool_handle *handle, pool_block *target, pool_lane *lane)
{
    lochi_pool_assert_both(pool);
    handle_fill(pool, handle, target, lane, 0);
}

/* Cuts the part of a free block that a handle lies under out of it. The result is in no list. Uses at most two stocked
 * records. */
static pool_block *handle_cut_free(lochi_pool *pool, pool_block *block, const pool_handle *handle)
{
    pool_lane *lane = block->lane;
    lochi_pool_bins_remove(&lane->bins, block);
    if (handle->at > block->start) {
        pool_block *front = block;
        block = lochi_pool_split(pool, front, handle->at);
        lochi_pool_bins_add(&lane->bins, front);
    }
    if (block->bytes > handle->bytes) {
        pool_block *rest = lochi_pool_split(pool, block, handle->at + handle->bytes);
        lochi_pool_find_cell(pool, rest->start)->handle->first = rest; /* the next handle is often the next to go */
        lochi_pool_bins_add(&lane->bins, rest);
    }
    return block;
}

loch_status lochi_pool_hold_handle(lochi_pool *pool, const pool_handle *handle, pool_block *block, pool_block **out)
{
    lochi_pool_assert_both(pool);
    if (!lochi_pool_stock_records(pool, 2)) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    *out = handle_cut_free(pool, block, handle);
    lochi_pool_set_state(*out, POOL_DETACHED);
    lochi_pool_enlist(&pool->detached.held, *out);
    return LOCH_OK;
}

/* Takes the memory of a handle away from the held block that it lies under. The block is in no list. */
static void handle_detach(lochi_pool *pool, pool_block *held)
{
    lochi_pool_set_cells(pool, held->start, held->bytes, NULL);
    lochi_pool_unlist(held);
}

/* Unmaps a handle with one mapping, outside the lock. The handle becomes unmapped. */
static loch_status handle_unmap(lochi_pool *pool, pool_handle *handle)
{
    lochi_pool_show(pool, handle->at, handle->bytes);
    lochi_pool_go_outside(pool);
    const loch_status status = loch_virtual_unmap((void *)handle->at);
    lochi_pool_come_back(pool);
    if (status != LOCH_OK) return status;
    handle->mappings = 0;
    lochi_pool_unlink_handle(&pool->handles, handle);
    lochi_pool_link_handle(&pool->unmapped_handles, handle);
    pool->unmapped_handle_bytes += handle->bytes;
    return LOCH_OK;
}

loch_status lochi_pool_unmap_handle(lochi_pool *pool, pool_handle *handle)
{
    lochi_pool_assert_both(pool);
    LOCH_TRY_RETURN(handle_unmap(pool, handle));
    lochi_pool_set_cells(pool, handle->at, handle->bytes, NULL);
    return LOCH_OK;
}

loch_status lochi_pool_unmap_free(lochi_pool *pool, pool_handle *handle, pool_block *block)
{
    lochi_pool_assert_both(pool);
    pool_block *held;
    if (handle->mappings > 1) return LOCH_FAIL(BUSY, "an old address of the memory is still in use");
    LOCH_TRY_RETURN(lochi_pool_hold_handle(pool, handle, block, &held));
    const loch_status status = handle_unmap(pool, handle);
    if (status != LOCH_OK) {
        lochi_pool_put_back(pool, held);
        return status;
    }
    handle_detach(pool, held);
    lochi_pool_make_unmapped(pool, held);
    return LOCH_OK;
}

/* --- moving --- */

bool lochi_pool_may_move(const lochi_pool *pool, const pool_block *block, const pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    if (lochi_pool_has_passed(block->lane, lochi_pool_epoch(block))) return true;
    return block->lane == lane && loch_device_can(pool->device, LOCH_CAN_ALIAS);
}

/* Leaves the present address of a handle, which lies under a held block: the address becomes stale. Returns the epoch
 * at which the memory is free elsewhere. */
static uint64_t handle_leave(lochi_pool *pool, pool_handle *handle, pool_block *held)
{
    const bool has_passed = lochi_pool_has_passed(held->lane, lochi_pool_epoch(held));
    const uint64_t epoch = lochi_pool_epoch(held);
    handle_detach(pool, held);
    lochi_pool_set_state(held, POOL_STALE);
    held->handle = handle;
    /* The lane's stream may still use the old address: the present epoch has to pass. */
    lochi_pool_set_epoch(held, has_passed ? 0 : held->lane->epoch);
    handle_list_stale(pool, held);
    return has_passed ? 0 : epoch;
}

/* Maps a handle a second time. The old mapping becomes stale. */
static loch_status handle_alias(lochi_pool *pool, pool_handle *handle, pool_block *held, pool_block *target,
                                pool_lane *lane)
{
    lochi_pool_go_outside(pool);
    const loch_status status = loch_virtual_map((void *)target->start, handle->handle, pool->peers, pool->peers_count);
    lochi_pool_come_back(pool);
    if (status != LOCH_OK) return status;
    const uint64_t epoch = handle_leave(pool, handle, held);
    handle->mappings++;
    handle_fill(pool, handle, target, lane, epoch);
    return LOCH_OK;
}

loch_status lochi_pool_revive(lochi_pool *pool, pool_block *stale, pool_block *home, pool_lane *lane)
{
    lochi_pool_assert_both(pool);
    pool_handle *handle = stale->handle;
    pool_block *held;
    LOCH_TRY_RETURN(lochi_pool_hold_handle(pool, handle, home, &held));
    const uint64_t epoch = handle_leave(pool, handle, held);
    handle_unlist_stale(pool, stale);
    stale->slab = NULL;
    handle->at = stale->start;
    lochi_pool_set_cells(pool, stale->start, stale->bytes, handle);
    handle_settle_later(pool, stale, lane, epoch);
    pool->counts.handles_revived++;
    return LOCH_OK;
}

/* Unmaps a handle, then maps it at the new address. */
static loch_status handle_transfer(lochi_pool *pool, pool_handle *handle, pool_block *held, pool_block *target,
                                   pool_lane *lane)
{
    loch_status status;
    if (loch_device_can(pool->device, LOCH_CAN_REMAP)) {
        lochi_pool_show(pool, handle->at, handle->bytes);
        lochi_pool_go_outside(pool);
        status = lochi_virtual_remap((void *)handle->at, (void *)target->start);
        lochi_pool_come_back(pool);
        if (status != LOCH_OK) return status;
    } else {
        LOCH_TRY_RETURN(handle_unmap(pool, handle));
        status = lochi_pool_map_handle(pool, handle, target->start);
    }
    handle_detach(pool, held);
    lochi_pool_enlist(&pool->detached.vacated, held);
    if (status != LOCH_OK) return status; /* the handle is unmapped now and serves the next request */
    handle_fill(pool, handle, target, lane, 0);
    return LOCH_OK;
}

loch_status lochi_pool_move_free(lochi_pool *pool, pool_handle *handle, pool_block *held, pool_block *target,
                                 pool_lane *lane)
{
    lochi_pool_assert_both(pool);
    LOCH_TRY_RETURN(loch_device_can(pool->device, LOCH_CAN_ALIAS) ? handle_alias(pool, handle, held, target, lane)
                                                                  : handle_transfer(pool, handle, held, target, lane));
    pool->counts.handles_moved++;
    return LOCH_OK;
}

loch_status lochi_pool_unmap_stale(lochi_pool *pool, pool_block *block)
{
    lochi_pool_assert_both(pool);
    lochi_pool_go_outside(pool); /* stale mappings stay as they are meanwhile */
    const loch_status status = loch_virtual_unmap((void *)block->start);
    lochi_pool_come_back(pool);
    if (status != LOCH_OK) return status;
    block->handle->mappings--;
    handle_unlist_stale(pool, block);
    lochi_pool_make_unmapped(pool, block);
    return LOCH_OK;
}

void lochi_pool_drop_stale(lochi_pool *pool, size_t keep)
{
    lochi_pool_assert_both(pool);
    for (pool_block *block = pool->stale.first, *next; block; block = next) {
        if (pool->stale.count <= keep && pool->stale.bytes <= pool->span / 4) return;
        next = block->list_next;
        if (!lochi_pool_has_passed(block->lane, lochi_pool_epoch(block))) continue;
        (void)lochi_pool_unmap_stale(pool, block); /* tried again later */
    }
}

/* --- giving back --- */

void lochi_pool_destroy_handle(lochi_pool *pool, pool_handle *handle)
{
    lochi_pool_assert_both(pool);
    lochi_pool_unlink_handle(&pool->unmapped_handles, handle);
    pool->unmapped_handle_bytes -= handle->bytes;
    lochi_pool_go_outside(pool);
    loch_handle_destroy(handle->handle);
    lochi_pool_come_back(pool);
    lochi_pool_uncount_handle(pool, handle->bytes);
    lochi_free(handle);
}

/* Destroys a handle that lies under a block which is detached, and makes the addresses unmapped. */
static loch_status handle_destroy(lochi_pool *pool, pool_handle *handle, pool_block *held)
{
    lochi_pool_show(pool, handle->at, handle->bytes);
    lochi_pool_go_outside(pool);
    loch_handle_destroy(
        handle->handle); /* destroyed before it is unmapped, so that the CPU device need not save the pages */
    const loch_status status = loch_virtual_unmap((void *)handle->at);
    lochi_pool_come_back(pool);
    handle_detach(pool, held);
    if (status == LOCH_OK) {
        lochi_pool_make_unmapped(pool, held);
    } else { /* these addresses are never used again */
        lochi_pool_set_state(held, POOL_STALE);
        held->handle = NULL;
        LOCHI_LOG(ERROR, "%s at %p are lost: %s", LOCHI_SIZE(handle->bytes), (void *)handle->at,
                  loch_error_get()->sentence);
    }
    lochi_pool_unlink_handle(&pool->handles, handle);
    lochi_pool_uncount_handle(pool, handle->bytes);
    lochi_free(handle);
    return status;
}

loch_status lochi_pool_destroy_free(lochi_pool *pool, pool_handle *handle, pool_block *block)
{
    lochi_pool_assert_both(pool);
    pool_block *held;
    if (handle->mappings > 1) return LOCH_FAIL(BUSY, "an old address of the memory is still in use");
    LOCH_TRY_RETURN(lochi_pool_hold_handle(pool, handle, block, &held));
    return handle_destroy(pool, handle, held);
}

void lochi_pool_destroy_filled(lochi_pool *pool, size_t count)
{
    lochi_pool_assert_both(pool);
    const loch_error saved = lochi_error_save();
    while (count--) {
        pool_block *block = pool->detached.filled; /* the newest is first */
        (void)handle_destroy(pool, lochi_pool_find_cell(pool, block->start)->handle, block);
    }
    lochi_error_restore(&saved);
}

/* --- sleeping --- */

loch_status lochi_pool_lay_down(lochi_pool *pool, pool_handle *handle)
{
    lochi_pool_assert_both(pool);
    lochi_pool_show(pool, handle->at, handle->bytes);
    lochi_pool_go_outside(pool);
    const loch_status status =
        loch_virtual_unmap((void *)handle->at); /* first, because it may fail; the contents are kept then */
    if (status == LOCH_OK) loch_handle_destroy(handle->handle);
    lochi_pool_come_back(pool);
    if (status != LOCH_OK) return status;
    handle->handle = NULL;
    handle->mappings = 0;
    lochi_pool_unlink_handle(&pool->handles, handle);
    lochi_pool_link_handle(&pool->sleep.handles, handle);
    lochi_pool_uncount_handle(pool, handle->bytes);
    pool->sleep.bytes += handle->bytes;
    return LOCH_OK;
}

loch_status lochi_pool_get_up(lochi_pool *pool, pool_handle *handle)
{
    lochi_pool_assert_both(pool);
    LOCH_TRY_RETURN(lochi_pool_claim(pool, handle->bytes));
    const loch_handle_options *options = pool->options.handle.size ? &pool->options.handle : NULL;
    loch_handle *made = NULL;
    lochi_pool_go_outside(pool);
    loch_status status = loch_handle_create(pool->device, handle->bytes, options, &made);
    if (status == LOCH_OK) {
        status = loch_virtual_map((void *)handle->at, made, pool->peers, pool->peers_count);
        if (status != LOCH_OK) loch_handle_destroy(made);
    }
    lochi_pool_come_back(pool);
    if (status != LOCH_OK) {
        lochi_pool_unclaim(pool, handle->bytes);
        return status;
    }
    handle->handle = made;
    handle->mappings = 1;
    lochi_pool_unlink_handle(&pool->sleep.handles, handle);
    lochi_pool_link_handle(&pool->handles, handle);
    lochi_pool_count_handle(pool, handle->bytes);
    pool->sleep.bytes -= handle->bytes;
    lochi_pool_show(pool, handle->at, handle->bytes);
    return LOCH_OK;
}

void lochi_pool_join_asleep(lochi_pool *pool, pool_handle *handle, pool_handle *behind)
{
    lochi_pool_assert_both(pool);
    lochi_pool_set_cells(pool, behind->at, behind->bytes, handle);
    lochi_pool_unlink_handle(&pool->sleep.handles, behind);
    handle->bytes += behind->bytes;
    handle->freed_lane = NULL; /* all streams had passed before the sleep */
    handle->freed_epoch = 0;
    lochi_free(behind);
}

void lochi_pool_forget_asleep(lochi_pool *pool, pool_handle *handle)
{
    lochi_pool_assert_both(pool);
    lochi_pool_show(pool, handle->at, handle->bytes); /* blocks freed during the sleep were hidden */
    lochi_pool_unlink_handle(&pool->sleep.handles, handle);
    pool->sleep.bytes -= handle->bytes;
    lochi_free(handle);
}

void lochi_pool_set_aside(lochi_pool *pool, pool_handle *segment)
{
    lochi_pool_assert_both(pool);
    segment->source = loch_allocator_retain(pool->options.source);
    segment->next = pool->source.returned;
    pool->source.returned = segment;
}

/* --- the end --- */

void lochi_pool_drop_all(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    for (pool_block *block = pool->stale.first; block; block = block->list_next) {
        const loch_status status = loch_virtual_unmap((void *)block->start);
        if (status != LOCH_OK) LOCHI_LOG(ERROR, "a mapping cannot be removed: %s", loch_error_get()->sentence);
    }
    while (pool->unmapped_handles)
        lochi_pool_destroy_handle(pool, pool->unmapped_handles);
    while (pool->sleep.handles)
        lochi_pool_forget_asleep(pool, pool->sleep.handles);
    while (pool->handles) {
        pool_handle *handle = pool->handles;
        loch_status status = LOCH_OK;
        lochi_pool_show(pool, handle->at, handle->bytes);
        if (handle->handle) {
            loch_handle_destroy(handle->handle);
            status = loch_virtual_unmap((void *)handle->at);
        } else if (!pool->range && !pool->options.source) {
            lochi_ranges_let(handle->raw, NULL); /* the range stays in the table if the driver refuses */
            status = loch_raw_free(handle->raw);
        }
        if (status != LOCH_OK)
            LOCHI_LOG(ERROR, "%s are lost: %s", LOCHI_SIZE(handle->bytes), loch_error_get()->sentence);
        lochi_pool_unlink_handle(&pool->handles, handle);
        lochi_span_remove(&handle->span);
        if (!pool->options.source || pool->range)
            lochi_free(handle);
        else
            lochi_pool_set_aside(pool, handle);
    }
}
