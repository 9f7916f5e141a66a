/* SPDX-License-Identifier: MIT */
/* Takes memory at a given address: for programs that bring blocks back to the addresses that they had.
 *
 * The addresses must be free memory of the request's lane, idle memory of other lanes, or unmapped; unmapped addresses
 * get memory first (supply.c). Neighbours are merged, whatever lane or arena they belong to, and the block is cut out.
 * What threads cache is given back to the pool if it is in the way, and empty slabs end.
 *
 * A small block needs the slab that it was in. Slabs start on pages, so several slabs of a class can have a block at
 * one address. A slab that ended has left marks in the table of pages; without them, the first slab that fits is
 * made. In pools of graphs the address tells the slab (lochi_pool_slab_alignment). */
#include "memory/pool/serve/exact.h"
#include "base/fail.h"
#include "kit/text.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/front/front.h"
#include "memory/pool/state/state.h"
#include "memory/pool/supply/supply.h"

/* --- looking --- */

/* Finds the block around an address, in any state; NULL if the address is not the pool's. */
static pool_block *exact_find(const lochi_pool *pool, uintptr_t address)
{
    const pool_handle *handle = lochi_pool_find_handle(pool, address);
    if (pool->policy.is_virtual ? address - pool->base >= pool->span
                                : !handle || address < handle->at || address >= handle->at + handle->bytes)
        return NULL;
    pool_block *block = lochi_pool_find_before(pool, pool->policy.is_virtual ? pool->first : handle->first, address);
    while (block && block->start + block->bytes <= address)
        block = block->behind;
    return block;
}

/* Tells whether a lane may use a block now, perhaps after the block got memory. */
static bool exact_is_open(lochi_pool *pool, const pool_block *block, const pool_lane *lane)
{
    const pool_state state = lochi_pool_state(block);
    if (state == POOL_UNMAPPED || state == POOL_STALE) return true;
    if (state != POOL_FREE) return false;
    if (block->lane == lane) return true;
    if (block->lane->capture) return false;
    lochi_pool_poll(pool, block->lane);
    return lochi_pool_has_passed(block->lane, lochi_pool_epoch(block));
}

/* Finds the blocks from `want->at` to its end. Sets the first one, and whether some have no memory. Empty slabs on the
 * way end. */
static loch_status exact_look(lochi_pool *pool, const pool_want *want, pool_block **first, bool *is_unmapped)
{
    const uintptr_t end = want->at + want->bytes;
    pool_block *block = *first = exact_find(pool, want->at);
    *is_unmapped = false;
    while (block) {
        const pool_state state = lochi_pool_state(block);
        if (state == POOL_SLAB && lochi_pool_slab_end(pool, block->slab)) {
            block = *first = exact_find(pool, want->at); /* the memory of the slab has merged with its neighbours */
            continue;
        }
        if (!exact_is_open(pool, block, want->lane))
            return LOCH_FAIL(BUSY, "%s at %p are not free in pool \"%s\"", LOCHI_SIZE(want->bytes), (void *)want->at,
                             loch_allocator_get_name(pool->allocator));
        *is_unmapped |= state != POOL_FREE;
        if (block->start + block->bytes >= end) return LOCH_OK;
        block = block->behind;
    }
    return LOCH_FAIL(OUT_OF_RANGE, "%s at %p are not addresses of pool \"%s\"", LOCHI_SIZE(want->bytes),
                     (void *)want->at, loch_allocator_get_name(pool->allocator));
}

/* --- taking --- */

/* Maps memory at addresses that have none. */
static loch_status exact_supply(lochi_pool *pool, const pool_want *want, pool_block **first)
{
    bool is_unmapped;
    pool_supplied ignored; /* it may be in several blocks */
    const loch_status status = lochi_pool_supply(pool, want, POOL_CREATED, &ignored);
    if (status == LOCH_E_FRAGMENTED) /* old mappings are in the way that streams still use */
        return LOCH_FAIL(BUSY, "the addresses at %p are still in use", (void *)want->at);
    LOCH_TRY_RETURN(status);
    LOCH_TRY_RETURN(exact_look(pool, want, first, &is_unmapped));
    if (is_unmapped) return LOCH_FAIL(BUSY, "the addresses at %p have no memory", (void *)want->at);
    return LOCH_OK;
}

static loch_status exact_take(lochi_pool *pool, const pool_want *want, pool_block **out)
{
    pool_block *block;
    bool is_unmapped;
    LOCH_TRY_RETURN(exact_look(pool, want, &block, &is_unmapped));
    if (is_unmapped) LOCH_TRY_RETURN(exact_supply(pool, want, &block));
    if (pool->policy.is_unsplit && block->start != want->at)
        return LOCH_FAIL(INVALID, "no segment of pool \"%s\" starts at %p", loch_allocator_get_name(pool->allocator),
                         (void *)want->at);
    const uintptr_t end = want->at + want->bytes;
    const bool is_alone = block->lane == want->lane && block->start + block->bytes >= end;
    if (block->is_piece && is_alone && block->start == want->at) { /* handed out whole, as before */
        lochi_pool_unbin(pool, block);
    } else {
        if (!is_alone || block->is_piece) block = lochi_pool_join_for(pool, block, end, want->lane);
        LOCH_TRY_RETURN(lochi_pool_cut(pool, block, want->at, want->bytes));
        if (block->start < want->at) block = block->behind; /* the record stays with the front part */
    }
    *out = block;
    return lochi_pool_use_block(pool, block, want->paged_bytes);
}

/* Tells whether a request can succeed after exact_flush. */
static bool exact_may_help(loch_status status)
{
    return status == LOCH_E_BUSY || status == LOCH_E_LIMIT || status == LOCH_E_DEVICE_MEMORY;
}

/* Gives back to the pool what threads cache, and what no stream uses any more. Waits for nothing. */
static void exact_flush(lochi_pool *pool)
{
    lochi_pool_flush_threads(pool);
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (lane->done != UINT64_MAX && !lane->is_closed && !lochi_pool_has_passed(lane, lane->freed))
            lochi_pool_mark(pool, lane); /* the work may be over: an event tells */
        lochi_pool_poll(pool, lane);
    }
    lochi_pool_collect(pool);
    lochi_pool_join_lanes(pool); /* handles under memory of several lanes can be remapped */
}

loch_status lochi_pool_take_block_at(lochi_pool *pool, const pool_want *want, pool_block **out)
{
    lochi_pool_assert_both(pool);
    const loch_error saved = lochi_error_save();
    const loch_status status = exact_take(pool, want, out);
    if (!exact_may_help(status)) return status;
    exact_flush(pool);
    lochi_error_restore(&saved);
    return exact_take(pool, want, out);
}

/* --- small blocks --- */

/* Tells whether a slab of a class that starts at `start` has a block at an address. */
static bool exact_has(const lochi_pool *pool, uint32_t class, uintptr_t start, uintptr_t address)
{
    const size_t bytes = pool->class_bytes[class], offset = address - start;
    return offset % bytes == 0 && offset + bytes <= pool->slab_bytes[class];
}

/* Makes a slab at an address. */
static loch_status exact_make_slab(lochi_pool *pool, pool_lane *lane, uint32_t class, uintptr_t start, pool_slab **out)
{
    pool_block *block;
    pool_slab *slab = lochi_pool_slab_take_record(pool, class);
    if (!slab) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a slab");
    const size_t bytes = pool->slab_bytes[class];
    const pool_want want = {bytes, POOL_PAGE, lane, bytes, start};
    const loch_status status = exact_take(pool, &want, &block);
    if (status == LOCH_OK)
        lochi_pool_slab_make(pool, slab, lane, block);
    else
        lochi_pool_slab_keep_record(pool, slab);
    *out = slab;
    return status;
}

/* Makes the slab of a class that had a block at an address: the one that its marks tell, or the first that fits. */
static loch_status exact_remake_slab(lochi_pool *pool, pool_lane *lane, uint32_t class, uintptr_t address,
                                     pool_slab **out)
{
    const size_t alignment = lochi_pool_slab_alignment(pool, class);
    uintptr_t start = address & ~(uintptr_t)(alignment - 1);
    const uintptr_t page = lochi_pool_find_page(pool, address),
                    marked = (address & ~(uintptr_t)(POOL_PAGE - 1)) - POOL_SLAB_MARK_INDEX(page) * POOL_PAGE;
    if (page & POOL_IS_FREED && POOL_SLAB_MARK_CLASS(page) == class && exact_has(pool, class, marked, address) &&
        exact_make_slab(pool, lane, class, marked, out) == LOCH_OK)
        return LOCH_OK;
    loch_status status =
        LOCH_FAIL(INVALID, "no block of %s starts at %p", LOCHI_SIZE(pool->class_bytes[class]), (void *)address);
    for (; address - start < pool->slab_bytes[class]; start -= alignment) {
        if (!exact_has(pool, class, start, address) || !exact_find(pool, start)) continue;
        status = exact_make_slab(pool, lane, class, start, out);
        if (status != LOCH_E_BUSY) break;
    }
    return status;
}

static loch_status exact_take_small(lochi_pool *pool, pool_lane *lane, uint32_t class, uintptr_t address,
                                    pool_entry *out)
{
    if (!exact_find(pool, address))
        return LOCH_FAIL(OUT_OF_RANGE, "%p is not an address of pool \"%s\"", (void *)address,
                         loch_allocator_get_name(pool->allocator));
    pool_slab *slab = lochi_pool_page_slab(lochi_pool_find_page(pool, address));
    const bool is_like = slab && slab->class == class && exact_has(pool, class, slab->start, address);
    if (slab && (!is_like || slab->lane != lane)) {
        const bool is_wrong = slab->class == class && !is_like;
        if (is_wrong && slab->free_count < slab->count)
            return LOCH_FAIL(INVALID, "no block of %s starts at %p", LOCHI_SIZE(slab->object_bytes), (void *)address);
        if (!lochi_pool_slab_end(pool, slab))
            return LOCH_FAIL(BUSY, "%p lies among blocks of %s that are in use", (void *)address,
                             LOCHI_SIZE(slab->object_bytes));
        slab = NULL;
    }
    if (!slab) LOCH_TRY_RETURN(exact_remake_slab(pool, lane, class, address, &slab));
    const uint32_t index = (uint32_t)((address - slab->start) / slab->object_bytes);
    if (slab->is_asleep || slab->is_closed || !lochi_pool_slab_pick(slab, index, out))
        return LOCH_FAIL(BUSY, "the block at %p is in use", (void *)address);
    return LOCH_OK;
}

loch_status lochi_pool_take_small_at(lochi_pool *pool, pool_lane *lane, uint32_t class, uintptr_t address,
                                     pool_entry *out)
{
    lochi_pool_assert_both(pool);
    const loch_error saved = lochi_error_save();
    const loch_status status = exact_take_small(pool, lane, class, address, out);
    if (!exact_may_help(status)) return status;
    exact_flush(pool);
    lochi_error_restore(&saved);
    return exact_take_small(pool, lane, class, address, out);
}
