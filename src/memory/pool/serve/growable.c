/* SPDX-License-Identifier: MIT */
/* Growable blocks: addresses for the largest size, memory for the present size. They lie on whole cells, and no
 * other block uses their handles. Small ones lie in the pool's range, all others in annexes (annex.c).
 *
 * The supply lock is held while a growable block is made, resized or freed, because its handles change with it.
 *
 * Memory that a block no longer needs stays mapped until the block's stream has passed. Then it is unmapped and kept
 * as an unmapped handle. */
#include "memory/pool/serve/growable.h"
#include "base/checked.h"
#include "base/fail.h"
#include "kit/text.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/front/front.h"
#include "memory/pool/supply/supply.h"
#include "memory/pool/limits/limits.h"
#include "memory/pool/trim/trim.h"
#include "memory/pool/state/state.h"
#include "memory/pool/pool.h"

#define GROWABLE_PARTS 64 /* handles of a growth, at least, if it has as many granules */
#define GROWABLE_PART 64  /* part of the pool's range that a growable block in it has at most */
#define GROWABLE_SHARE 4  /* part of the pool's range from which on growable blocks get none of it */

/* Tells whether a block is the whole of one handle (LOCH_ALLOC_ONE_HANDLE). The member is unused in a live block. */
static bool growable_is_one(const pool_block *block)
{
    return block->kept->frozen & LOCH_ALLOC_ONE_HANDLE;
}

/* Finds the largest unmapped handle of at most `bytes`, or with `is_one` one of `bytes`; NULL for none. */
static pool_handle *growable_find_handle(const lochi_pool *pool, size_t bytes, bool is_one)
{
    pool_handle *best = NULL;
    for (pool_handle *handle = pool->unmapped_handles; handle; handle = handle->next)
        if (is_one ? handle->bytes == bytes : handle->bytes <= bytes && (!best || handle->bytes > best->bytes))
            best = handle;
    return best;
}

/* Takes the memory and addresses of freed blocks whose streams have passed. Returns whether there were any blocks. */
static bool growable_collect(lochi_pool *pool)
{
    if (!pool->annexes.ended) return false;
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next)
        lochi_pool_poll(pool, lane);
    lochi_pool_drop_shrunk(pool);
    return true;
}

/* Unmaps an idle free handle of at most `bytes`. Returns false if no such handle exists. */
static bool growable_unmap_idle(lochi_pool *pool, size_t bytes)
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

/* Creates a handle of `bytes`, not of less. */
static loch_status growable_create_one(lochi_pool *pool, size_t bytes, pool_handle **out)
{
    LOCH_TRY_RETURN(lochi_pool_create_some(pool, bytes, out));
    if ((*out)->bytes == bytes) return LOCH_OK;
    lochi_pool_destroy_handle(pool, *out);
    return LOCH_E_DEVICE_MEMORY;
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

/* Finds or makes one handle for the end of a growable block, or for the whole of it. */
static loch_status growable_get_handle(lochi_pool *pool, size_t bytes, bool is_one, pool_handle **out)
{
    loch_status (*create)(lochi_pool *, size_t, pool_handle **) = is_one ? growable_create_one : growable_create;
    *out = growable_find_handle(pool, bytes, is_one);
    if (!*out && growable_collect(pool)) *out = growable_find_handle(pool, bytes, is_one);
    if (!*out && !is_one && growable_unmap_idle(pool, bytes)) *out = growable_find_handle(pool, bytes, is_one);
    if (*out) return LOCH_OK;
    const loch_error saved = lochi_error_save();
    loch_status status = create(pool, bytes, out);
    const size_t free = lochi_pool_free_bytes(pool);
    if ((status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT) &&
        lochi_pool_trim(pool, free > bytes ? free - bytes : 0)) {
        lochi_error_restore(&saved); /* free memory went back to the device: try again */
        status = create(pool, bytes, out);
    }
    return status;
}

/* Tells whether limits and the device leave room for a growth, with the handles of which nothing is in use. */
static bool growable_fits(lochi_pool *pool, size_t bytes)
{
    const size_t room = lochi_pool_find_room(pool);
    return bytes <= room || bytes - room <= lochi_pool_count_idle(pool, true);
}

/* Frees what threads, slabs and streams hold, until a growth fits. Waits for streams only if that can be enough.
 * Returns whether it fits. */
static bool growable_gather(lochi_pool *pool, size_t bytes)
{
    const loch_error saved = lochi_error_save();
    (void)lochi_pool_trim(pool, SIZE_MAX); /* gives nothing back */
    bool fits = growable_fits(pool, bytes);
    if (!fits && bytes - lochi_pool_find_room(pool) <= lochi_pool_count_spare(pool)) {
        lochi_pool_wait_for_all(pool);
        (void)lochi_pool_trim(pool, SIZE_MAX);
        fits = growable_fits(pool, bytes);
    }
    lochi_error_restore(&saved);
    return fits;
}

static loch_status growable_refuse(lochi_pool *pool, size_t bytes, loch_status status)
{
    return lochi_pool_fail(pool, &(pool_want){bytes, POOL_UNIT, NULL, 0, 0}, status);
}

/* Refuses a growth that limits and the device do not leave room for, before anything is taken for it. */
static loch_status growable_check(lochi_pool *pool, size_t target, size_t bytes)
{
    LOCH_TRY_RETURN(lochi_pool_check_ceiling(pool, target));
    lochi_pool_look_at_room(pool, bytes);
    if (growable_fits(pool, bytes) || growable_gather(pool, bytes)) return LOCH_OK;
    const bool is_limited = lochi_pool_find_limit_room(pool) < bytes;
    return growable_refuse(pool, bytes, is_limited ? LOCH_E_LIMIT : LOCH_E_DEVICE_MEMORY);
}

static loch_status growable_grow(lochi_pool *pool, pool_block *block, size_t bytes)
{
    const size_t target = lochi_pool_round(pool, bytes);
    while (block->committed < target) {
        pool_handle *handle;
        const uintptr_t at = block->start + block->committed;
        LOCH_TRY_RETURN(growable_get_handle(pool, target - block->committed, growable_is_one(block), &handle));
        LOCH_TRY_RETURN(
            lochi_pool_map_handle(pool, handle, at)); /* on failure the handle stays unmapped, for the next call */
        handle->at = at;
        lochi_pool_set_cells(pool, at, handle->bytes, handle);
        lochi_pool_show(pool, at, handle->bytes);
        block->committed += handle->bytes;
        pool->used += handle->bytes;
    }
    return LOCH_OK;
}

/* Undoes a growth that failed: the block has `committed` bytes, and the pool `reserved` as before. */
static void growable_undo(lochi_pool *pool, pool_block *block, size_t committed, size_t reserved)
{
    const loch_error saved = lochi_error_save();
    pool_handle *handle;
    lochi_pool_shrink(pool, block, committed); /* no stream has used the new memory */
    while (pool->unmapped_handles && pool->reserved > reserved)
        lochi_pool_destroy_handle(pool, pool->unmapped_handles);
    while (pool->reserved < reserved) { /* idle handles went back to the device for it */
        const size_t lack = reserved - pool->reserved, chosen = lochi_pool_choose_handle(pool, lack);
        if (lochi_pool_create_some(pool, chosen < lack ? chosen : lack, &handle) != LOCH_OK) break;
    }
    lochi_error_restore(&saved);
}

/* Grows a block to `bytes`. Leaves it unchanged on failure. */
static loch_status growable_extend(lochi_pool *pool, pool_block *block, size_t bytes)
{
    const size_t committed = block->committed, requested = lochi_pool_requested(block), reserved = pool->reserved;
    const size_t growth = lochi_pool_round(pool, bytes) - committed;
    LOCH_TRY_RETURN(growable_check(pool, bytes, growth));
    lochi_pool_set_requested(block, bytes); /* set first, so that lochi_pool_drop_shrunk does not take the new memory */
    const loch_status status = growable_grow(pool, block, bytes);
    if (status == LOCH_OK) return LOCH_OK;
    growable_undo(pool, block, committed, reserved);
    lochi_pool_set_requested(block, requested);
    if (lochi_pool_round(pool, requested) < block->committed) pool->has_shrunk = true;
    const bool is_short = status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT;
    return is_short ? growable_refuse(pool, growth, status) : status;
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

/* Frees the addresses of a growable block behind its memory. */
static void growable_free_rest(lochi_pool *pool, pool_block *block)
{
    const size_t committed = block->committed;
    if (block->is_annex) {
        lochi_pool_set_bytes(block, committed);
        return;
    }
    pool->annexes.ranged_bytes -= block->bytes;
    lochi_pool_enter_page(pool, block->start, POOL_MARK(block->start));
    if (committed && committed < block->bytes)
        lochi_pool_make_unmapped(pool, lochi_pool_split(pool, block, block->start + committed));
}

/* Frees a growable block without memory. */
static void growable_free_range(lochi_pool *pool, pool_block *block)
{
    if (block->has_uses) lochi_pool_forget_uses(pool, block->start);
    block->has_uses = false;
    if (!block->is_annex) {
        lochi_pool_make_unmapped(pool, block);
        return;
    }
    lochi_pool_set_state(block, POOL_WAITING);
    lochi_pool_end_annex(pool, block->start);
    lochi_pool_drop_record(pool, block);
}

void lochi_pool_free_growable(lochi_pool *pool, pool_block *block)
{
    lochi_pool_assert_both(pool);
    const size_t committed = block->committed;
    pool_lane *lane = block->lane;
    growable_unlist(block);
    block->tag = 0;
    lochi_pool_set_id(block, 0);
    block->kept->shrink_epoch = block->kept->frozen = 0;
    lochi_pool_drop_record(pool, block->kept);
    growable_free_rest(pool, block);
    if (!committed) {
        growable_free_range(pool, block);
        return;
    }
    pool->used -= committed;
    lochi_pool_hide(pool, block->start, committed);
    if (block->has_uses) {
        block->has_uses = false;
        pool->used += committed;
        lochi_pool_wait_for_uses(pool, block->start, block, NULL);
        return;
    }
    if (!lochi_pool_wipe_block(pool, block)) {
        pool->used += committed;
        return;
    }
    const bool is_annex = block->is_annex;
    lochi_pool_make_free(pool, block, lane->epoch);
    lochi_pool_mark(pool, lane); /* its handles serve other growable blocks after this event */
    if (is_annex) lochi_pool_drop_shrunk(pool);
}

/* Finds unmapped addresses in the pool's range; NULL for none. Memory there serves other blocks after the free without
 * a driver call, so small growable blocks get some. All others would leave no room for ordinary blocks. */
static pool_block *growable_find_range(const lochi_pool *pool, size_t bytes, size_t step, bool is_last_resort)
{
    const bool is_small = bytes <= pool->span / GROWABLE_PART;
    const bool has_room = pool->annexes.ranged_bytes <= pool->span / GROWABLE_SHARE;
    return is_last_resort || (is_small && has_room)
               ? lochi_pool_bins_fit(pool, pool->unmapped_ranges, bytes, step, false)
               : NULL;
}

/* Takes addresses out of the pool's range, or reserves an annex, whose handle can serve another block as a whole later.
 * The block has its addresses and is in no list. */
static loch_status growable_get_addresses(lochi_pool *pool, size_t bytes, size_t step, bool is_one, pool_block **out)
{
    pool_annex *annex = NULL;
    LOCH_TRY_RETURN(lochi_pool_open_addresses(pool));
    (void)growable_collect(pool);
    pool_block *unmapped = is_one ? NULL : growable_find_range(pool, bytes, step, false);
    const loch_status status = unmapped ? LOCH_OK : lochi_pool_open_annex(pool, bytes, step, &annex);
    if (status == LOCH_E_ADDRESSES) unmapped = growable_find_range(pool, bytes, step, true);
    if (!lochi_pool_stock_records(pool, 3)) {
        if (annex) lochi_pool_return_annex(pool, annex);
        return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    }
    if (unmapped) {
        *out = lochi_pool_take_unmapped(pool, unmapped, (unmapped->start + step - 1) & ~(uintptr_t)(step - 1), bytes);
        pool->annexes.ranged_bytes += bytes;
        return LOCH_OK;
    }
    if (status != LOCH_OK) return status;
    pool_block *block = *out = lochi_pool_take_record(pool);
    block->start = annex->node.key;
    lochi_pool_set_bytes(block, bytes);
    block->before = block->behind = NULL;
    block->is_annex = true;
    lochi_pool_enter_annex(pool, annex, block);
    return LOCH_OK;
}

/* Reserves addresses for a growable block. */
static loch_status growable_reserve(lochi_pool *pool, pool_lane *lane, const loch_request *request, pool_block **out)
{
    const size_t max_bytes = request->max_bytes, alignment = request->alignment;
    const size_t step = alignment > pool->cell_bytes ? alignment : pool->cell_bytes;
    size_t bytes;
    if (!lochi_round_up(max_bytes, pool->cell_bytes, &bytes))
        return LOCH_FAIL(OVERFLOW, "%s do not fit the address space", LOCHI_SIZE(max_bytes));
    pool_block *block;
    LOCH_TRY_RETURN(growable_get_addresses(pool, bytes, step, request->flags & LOCH_ALLOC_ONE_HANDLE, &block));
    block->lane = lane;
    block->committed = 0;
    block->kept = lochi_pool_take_record(pool); /* unused until the block is freed: it has the request's flags */
    block->kept->frozen = request->flags & (LOCH_ALLOC_NO_RETRY | LOCH_ALLOC_ONE_HANDLE);
    lochi_pool_set_requested(block, 0);
    lochi_pool_set_state(block, POOL_GROWABLE);
    growable_enlist(pool, block);
    if (!block->is_annex) lochi_pool_enter_page(pool, block->start, lochi_pool_page_of(block));
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
    if (status == LOCH_OK) status = growable_reserve(pool, lane, request, &block);
    if (status == LOCH_OK) status = lochi_pool_resize_block(pool, block, request->bytes);
    if (status == LOCH_OK) {
        block->tag = (uint16_t)request->tag;
        block->kept->shrink_epoch = request->timeout_ns; /* the record is unused until the block is freed */
        lochi_pool_count_alloc(pool, lochi_pool_cache(pool, lane), request->bytes, block->committed);
        *out = (void *)block->start;
    } else if (block) {
        lochi_pool_free_growable(pool, block);
    }
    return status;
}

/* Finds the growable block at an address; NULL for none. No lock needed for a live block in the pool's range. */
static const pool_block *growable_find(const lochi_pool *pool, const void *address)
{
    const pool_block *block = lochi_pool_page_block(lochi_pool_find_page(pool, (uintptr_t)address));
    const bool is_it = block && lochi_pool_state(block) == POOL_GROWABLE && block->start == (uintptr_t)address;
    return is_it ? block : NULL;
}

bool lochi_pool_is_growable(lochi_pool *pool, const void *address)
{
    if ((uintptr_t)address - pool->base < pool->span) return growable_find(pool, address) != NULL;
    lochi_lock_take(&pool->lock);
    const bool is_it = growable_find(pool, address) != NULL;
    lochi_lock_drop(&pool->lock);
    return is_it;
}

bool lochi_pool_get_growth(lochi_pool *pool, const void *address, lochi_growth *out)
{
    const bool is_mine = lochi_lock_is_mine(&pool->lock); /* a walk over the blocks asks */
    if (!is_mine) lochi_lock_take(&pool->lock);
    const pool_block *block = growable_find(pool, address);
    if (block)
        *out = (lochi_growth){.bytes = lochi_pool_requested(block),
                              .max_bytes = block->bytes,
                              .committed = block->committed,
                              .timeout_ns = block->kept->shrink_epoch,
                              .flags = block->kept->frozen};
    if (!is_mine) lochi_lock_drop(&pool->lock);
    return block != NULL;
}
