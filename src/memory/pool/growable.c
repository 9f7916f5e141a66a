/* SPDX-License-Identifier: MIT */
/* Growable blocks: addresses for the largest size, memory for the present size. They lie on whole cells, and no
 * other block uses their handles.
 *
 * The supply lock is held while a growable block is made, resized or freed, because its handles change with it.
 *
 * Memory that a block no longer needs stays mapped until the block's stream has passed. Then it is unmapped and kept
 * as a loose handle. */
#include "memory/pool/growable.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/text.h"
#include "memory/pool/block.h"
#include "memory/pool/bounds.h"
#include "memory/pool/cache.h"
#include "memory/pool/cells.h"
#include "memory/pool/handle.h"
#include "memory/pool/heap.h"
#include "memory/pool/idle.h"
#include "memory/pool/lane.h"
#include "memory/pool/outside.h"
#include "memory/pool/price.h"
#include "memory/pool/release.h"
#include "memory/pool/poison.h"
#include "memory/pool/pool.h"
#include "memory/pool/refuse.h"
#include "memory/pool/shrunk.h"
#include "memory/pool/trim.h"
#include "memory/pool/uses.h"
#include "memory/pool/wipe.h"

#define GROWABLE_PARTS 64 /* handles of a growth, at least, if it has as many granules */

/* Finds the largest loose handle of at most `bytes`; NULL for none. */
static pool_handle *growable_find_loose(const lochi_pool *pool, size_t bytes)
{
    pool_handle *best = NULL;
    for (pool_handle *handle = pool->loose; handle; handle = handle->next)
        if (handle->bytes <= bytes && (!best || handle->bytes > best->bytes)) best = handle;
    return best;
}

/* Unmaps an idle free handle of at most `bytes`, so that it becomes loose. Returns false if no such handle exists. */
static bool growable_loosen(lochi_pool *pool, size_t bytes)
{
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (lane->capture) continue;
        lochi_pool_poll(pool, lane);
        pool_block *block;
        pool_handle *handle = lochi_pool_find_idle(pool, lane, bytes, &block);
        if (handle && lochi_pool_unmap_free(pool, handle, block) == LOCH_OK) return true;
    }
    return false;
}

/* Creates a handle of at most `bytes`, or a smaller one if the device has no more. It is a small part of what is
 * missing, so that shrinking the block frees something. */
static loch_status growable_create(lochi_pool *pool, size_t bytes, pool_handle **out)
{
    const size_t chosen = lochi_pool_choose_handle(pool, bytes), part = bytes / GROWABLE_PARTS;
    size_t most = pool->cell_bytes;
    while (2 * most <= chosen && 2 * most <= part)
        most *= 2;
    if (pool->options.handle_bytes) most = chosen;
    return lochi_pool_create_some(pool, bytes < most ? bytes : most, out);
}

/* Finds or makes one handle for the end of a growable block. */
static loch_status growable_get_handle(lochi_pool *pool, size_t bytes, pool_handle **out)
{
    *out = growable_find_loose(pool, bytes);
    if (!*out && growable_loosen(pool, bytes)) *out = growable_find_loose(pool, bytes);
    if (*out) return LOCH_OK;
    const loch_error saved = lochi_error_save();
    loch_status status = growable_create(pool, bytes, out);
    if ((status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT) && lochi_pool_trim(pool, 0)) {
        lochi_error_restore(&saved); /* all free memory went back to the device: try again */
        status = growable_create(pool, bytes, out);
    }
    return status;
}

static loch_status growable_grow(lochi_pool *pool, pool_block *block, size_t bytes)
{
    const size_t target = lochi_pool_round(pool, bytes);
    while (block->committed < target) {
        pool_handle *handle;
        const uintptr_t at = block->start + block->committed;
        LOCH_TRY_RETURN(growable_get_handle(pool, target - block->committed, &handle));
        LOCH_TRY_RETURN(
            lochi_pool_map_loose(pool, handle, at)); /* on failure the handle stays loose, for the next call */
        handle->at = at;
        lochi_pool_set_cells(pool, at, handle->bytes, handle);
        lochi_pool_show(pool, at, handle->bytes);
        block->committed += handle->bytes;
        pool->used += handle->bytes;
    }
    return LOCH_OK;
}

/* Grows a block to `bytes`. Leaves it unchanged on failure. */
static loch_status growable_extend(lochi_pool *pool, pool_block *block, size_t bytes)
{
    const size_t committed = block->committed, requested = lochi_pool_requested(block);
    lochi_pool_set_requested(block, bytes); /* set first, so that lochi_pool_drop_shrunk does not take the new memory */
    const loch_status status = growable_grow(pool, block, bytes);
    if (status == LOCH_OK) return LOCH_OK;
    lochi_pool_shrink(pool, block, committed); /* no stream has used the new memory */
    lochi_pool_set_requested(block, requested);
    if (lochi_pool_round(pool, requested) < block->committed) pool->has_shrunk = true;
    return status;
}

loch_status lochi_pool_resize_block(lochi_pool *pool, pool_block *block, size_t bytes)
{
    lochi_pool_assert_both(pool);
    if (bytes > block->bytes)
        return LOCH_FAIL(OUT_OF_RANGE, "%s are more than the %s reserved for the block", LOCHI_SIZE(bytes),
                         LOCHI_SIZE(block->bytes));
    if (lochi_pool_round(pool, bytes) > block->committed) return growable_extend(pool, block, bytes);
    if (lochi_pool_round(pool, bytes) < block->committed) {
        const size_t kept = lochi_pool_round(pool, bytes);
        LOCH_TRY_RETURN(lochi_pool_wipe(pool, block->lane, block->start + kept, block->committed - kept));
        lochi_pool_show(pool, block->start + kept,
                        block->committed - kept); /* the memory may be needed again before it is unmapped */
        block->shrink_epoch = block->lane->epoch;
        lochi_pool_mark(pool, block->lane);
        pool->has_shrunk = true;
    }
    lochi_pool_set_requested(block, bytes);
    return LOCH_OK;
}

/* Enters a block in the list of growable blocks. They have links of their own, because blocks in other lists have no
 * id. */
static void growable_enlist(lochi_pool *pool, pool_block *block)
{
    block->list_next = pool->growables;
    block->grown_link = &pool->growables;
    if (block->list_next) block->list_next->grown_link = &block->list_next;
    pool->growables = block;
}

static void growable_unlist(const pool_block *block)
{
    *block->grown_link = block->list_next;
    if (block->list_next) block->list_next->grown_link = block->grown_link;
}

void lochi_pool_free_growable(lochi_pool *pool, pool_block *block)
{
    lochi_pool_assert_both(pool);
    const size_t committed = block->committed;
    pool_lane *lane = block->lane;
    growable_unlist(block);
    lochi_pool_enter_page(pool, block->start, POOL_MARK(block->start));
    block->tag = 0;
    lochi_pool_set_id(block, 0);
    block->kept->shrink_epoch = block->kept->frozen = 0;
    lochi_pool_drop_record(pool, block->kept);
    if (committed && committed < block->bytes) {
        pool_block *rest = lochi_pool_split(pool, block, block->start + committed);
        lochi_pool_make_bare(pool, rest);
    }
    if (!committed) {
        if (block->is_elsewhere) lochi_pool_forget_uses(pool, block->start);
        block->is_elsewhere = false;
        lochi_pool_make_bare(pool, block);
        return;
    }
    pool->used -= committed;
    lochi_pool_hide(pool, block->start, committed);
    if (block->is_elsewhere) {
        block->is_elsewhere = false;
        pool->used += committed;
        lochi_pool_wait_for_uses(pool, block->start, block, NULL);
        return;
    }
    if (!lochi_pool_wipe_block(pool, block)) {
        pool->used += committed;
        return;
    }
    lochi_pool_make_free(pool, block, lane->epoch);
    lochi_pool_mark(pool, lane); /* its handles serve other growable blocks after this event */
}

/* Reserves addresses for a growable block. */
static loch_status growable_reserve(lochi_pool *pool, pool_lane *lane, size_t max_bytes, size_t alignment,
                                    pool_block **out)
{
    const size_t step = alignment > pool->cell_bytes ? alignment : pool->cell_bytes;
    size_t bytes;
    if (!lochi_round_up(max_bytes, pool->cell_bytes, &bytes))
        return LOCH_FAIL(OVERFLOW, "%s do not fit the address space", LOCHI_SIZE(max_bytes));
    if (!lochi_pool_stock_records(pool, 3)) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    pool_block *bare = lochi_pool_bins_fit(&pool->bare, bytes, step, false);
    if (!bare) return LOCH_FAIL(DEVICE_MEMORY, "%s of addresses are not free in one piece", LOCHI_SIZE(bytes));
    const uintptr_t start = (bare->start + step - 1) & ~(uintptr_t)(step - 1);
    LOCH_TRY_RETURN(lochi_pool_make_cells(pool, start, bytes));
    LOCH_TRY_RETURN(lochi_pool_prepare_pages(pool, start, 1));
    pool_block *block = lochi_pool_take_bare(pool, bare, start, bytes);
    block->lane = lane;
    block->committed = 0;
    block->kept = lochi_pool_take_record(pool);
    lochi_pool_set_state(block, POOL_GROWABLE);
    growable_enlist(pool, block);
    lochi_pool_enter_page(pool, start, lochi_pool_page_of(block));
    *out = block;
    return LOCH_OK;
}

loch_status lochi_pool_make_growable(lochi_pool *pool, const loch_request *request, void **out)
{
    lochi_lock_assert_held(&pool->lock);
    loch_status status;
    pool_block *block = NULL;
    pool_lane *lane = lochi_pool_lane(pool, request->stream, &status);
    if (lane && pool->is_of_graphs)
        status = LOCH_FAIL(UNSUPPORTED, "the memory of pool \"%s\" belongs to graphs: it has no growable blocks",
                           loch_allocator_get_name(pool->allocator));
    else if (lane && lane->capture)
        status = LOCH_FAIL(BUSY, "a growable block cannot be made on a stream that is captured");
    if (status == LOCH_OK) status = growable_reserve(pool, lane, request->max_bytes, request->alignment, &block);
    if (status == LOCH_OK) status = lochi_pool_resize_block(pool, block, request->bytes);
    if (status == LOCH_OK) {
        block->tag = (uint16_t)request->tag;
        block->kept->shrink_epoch = request->timeout_ns; /* the record is unused until the block is freed */
        block->kept->frozen = request->flags & LOCH_ALLOC_NO_RETRY;
        lochi_pool_count_alloc(pool, lochi_pool_cache(pool, lane), request->bytes, block->committed);
        *out = (void *)block->start;
    } else if (block) {
        lochi_pool_free_growable(pool, block);
    }
    return status;
}

/* Finds the growable block at an address; NULL if there is none. No lock needed for a live block. */
static const pool_block *growable_find(const lochi_pool *pool, const void *address)
{
    const pool_block *block = lochi_pool_page_block(lochi_pool_find_page(pool, (uintptr_t)address));
    const bool is_it = block && lochi_pool_state(block) == POOL_GROWABLE && block->start == (uintptr_t)address;
    return is_it ? block : NULL;
}

bool lochi_pool_is_growable(const lochi_pool *pool, const void *address)
{
    return growable_find(pool, address) != NULL;
}

bool lochi_pool_get_growth(lochi_pool *pool, const void *address, lochi_growth *out)
{
    lochi_lock_take(&pool->lock);
    const pool_block *block = growable_find(pool, address);
    if (block)
        *out = (lochi_growth){.bytes = lochi_pool_requested(block),
                              .max_bytes = block->bytes,
                              .timeout_ns = block->kept->shrink_epoch,
                              .flags = block->kept->frozen};
    lochi_lock_drop(&pool->lock);
    return block != NULL;
}
