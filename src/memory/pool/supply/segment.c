/* SPDX-License-Identifier: MIT */
/* Raw segments: the memory of pools without virtual memory, and the range of a child. A segment is one handle and
 * stays at its address. */
#include "memory/pool/supply/segment.h"
#include "base/fail.h"
#include "kit/text.h"
#include "base/heap.h"
#include "base/logging.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/supply/handle.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"

/* Returns the status of a driver call that has failed. Pinned memory is the host's: a driver that has none left says
 * E_HOST_MEMORY, which stands for the library's own bookkeeping in a pool. It is the pool's memory that is short. */
static loch_status segment_refuse(const lochi_pool *pool, loch_status status)
{
    if (status != LOCH_E_HOST_MEMORY || pool->kind != LOCH_MEMORY_PINNED) return status;
    const loch_error saved = lochi_error_save();
    return loch_error_set(LOCH_E_DEVICE_MEMORY, saved.driver, saved.driver_code, "%s", saved.sentence);
}

/* Allocates raw memory outside the lock and claims it in the limits. */
static loch_status segment_alloc(lochi_pool *pool, pool_handle *segment, size_t bytes, size_t alignment)
{
    segment->raw_bytes = bytes;
    LOCH_TRY_RETURN(lochi_pool_claim(pool, bytes));
    lochi_pool_go_outside(pool);
    const loch_status status = loch_raw_alloc(pool->device, pool->kind, bytes, alignment, &segment->raw);
    lochi_pool_come_back(pool);
    if (status == LOCH_OK) return LOCH_OK;
    lochi_pool_unclaim(pool, bytes);
    return segment_refuse(pool, status);
}

/* Frees the raw memory of a segment and counts it out. */
static void segment_return_raw(lochi_pool *pool, const pool_handle *segment)
{
    lochi_ranges_let(segment->raw, NULL);
    lochi_pool_go_outside(pool);
    if (loch_raw_free(segment->raw) != LOCH_OK)
        LOCHI_LOG(ERROR, "a raw segment of %s is lost: %s", LOCHI_SIZE(segment->raw_bytes), loch_error_get()->sentence);
    lochi_pool_come_back(pool);
    lochi_pool_unclaim(pool, segment->raw_bytes);
}

/* Allocates raw memory for a segment of its own size from a driver that aligns less: large memory is often aligned
 * well. E_UNSUPPORTED if it is not. */
static loch_status segment_try_luck(lochi_pool *pool, pool_handle *segment, size_t alignment)
{
    LOCH_TRY_RETURN(segment_alloc(pool, segment, segment->bytes, 0));
    if (!((uintptr_t)segment->raw & (alignment - 1))) return LOCH_OK;
    segment_return_raw(pool, segment);
    return LOCH_E_UNSUPPORTED;
}

/* Allocates raw memory for a segment and counts it in. */
static loch_status segment_get_raw(lochi_pool *pool, pool_handle *segment, size_t bytes, size_t alignment)
{
    segment->bytes = bytes;
    loch_status status = segment_alloc(pool, segment, bytes, alignment);
    if (status == LOCH_E_UNSUPPORTED && pool->policy.is_unsplit) status = segment_try_luck(pool, segment, alignment);
    if (status == LOCH_E_UNSUPPORTED) { /* the driver aligns less: take more bytes, and fewer segments from now on */
        pool->is_exact = false;
        status = segment_alloc(pool, segment, bytes + alignment, 0);
    }
    segment->at = ((uintptr_t)segment->raw + alignment - 1) & ~(uintptr_t)(alignment - 1);
    if (status == LOCH_OK) lochi_ranges_let(segment->raw, &pool->tenant);
    return status;
}

/* Makes the memory of a segment one free block. Its cells exist, and a record is stocked. */
static void segment_enter(lochi_pool *pool, pool_handle *segment, pool_lane *lane, uint64_t epoch)
{
    lochi_pool_set_cells(pool, segment->at, segment->bytes, segment);
    segment->mappings = 1;
    lochi_pool_link_handle(&pool->handles, segment);
    lochi_pool_count_handle(pool, segment->raw_bytes);
    if (pool->allocator) lochi_span_add(&segment->span, segment->at, segment->bytes, pool->allocator);
    pool_block *block = lochi_pool_take_record(pool);
    segment->first = block;
    block->start = segment->at;
    lochi_pool_set_bytes(block, segment->bytes);
    block->before = block->behind = NULL;
    block->lane = lane;
    block->is_captured = lane->capture != 0;
    lochi_pool_hide(pool, block->start, block->bytes);
    lochi_pool_make_free(pool, block, epoch);
}

loch_status lochi_pool_enter_segment(lochi_pool *pool, pool_handle *segment, pool_lane *lane, uint64_t epoch)
{
    lochi_pool_assert_both(pool);
    if (!lochi_pool_stock_records(pool, 1)) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    LOCH_TRY_RETURN(lochi_pool_make_cells(pool, segment->at, segment->bytes));
    segment_enter(pool, segment, lane, epoch);
    return LOCH_OK;
}

loch_status lochi_pool_take_segment(lochi_pool *pool, size_t bytes, size_t alignment, pool_lane *lane)
{
    lochi_pool_assert_both(pool);
    LOCH_TRY_RETURN(lochi_pool_check_limit(pool, bytes));
    pool_handle *segment = lochi_zalloc(sizeof *segment);
    if (!segment) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a segment");
    loch_status status;
    LOCH_TRY(segment_get_raw(pool, segment, bytes, alignment), fail);
    status = lochi_pool_enter_segment(pool, segment, lane, 0);
    if (status == LOCH_OK) return LOCH_OK;
    segment_return_raw(pool, segment);
fail:
    lochi_free(segment);
    return status;
}

loch_status lochi_pool_adopt_range(lochi_pool *pool, size_t bytes, pool_lane *lane)
{
    lochi_pool_assert_both(pool);
    pool_handle *segment = lochi_zalloc(sizeof *segment);
    if (!segment) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a segment");
    segment->raw_bytes = segment->bytes = bytes;
    segment->at = (uintptr_t)pool->range;
    const loch_status status = lochi_pool_enter_segment(pool, segment, lane, lane->epoch);
    if (status != LOCH_OK) {
        lochi_free(segment);
        return status;
    }
    lochi_pool_mark(pool, lane); /* other streams use the range without a wait after this event */
    return LOCH_OK;
}

loch_status lochi_pool_drop_segment(lochi_pool *pool, pool_handle *segment, pool_block *block)
{
    lochi_pool_assert_both(pool);
    lochi_pool_show(pool, segment->at, segment->bytes);
    lochi_pool_hold(pool, block, &pool->detached.held);
    if (!pool->options.source) {
        lochi_pool_go_outside(pool);
        const loch_status status = loch_raw_free(segment->raw);
        lochi_pool_come_back(pool);
        if (status != LOCH_OK) {
            lochi_pool_put_back(pool, block);
            return status;
        }
    }
    lochi_pool_unlist(block);
    lochi_pool_set_cells(pool, segment->at, segment->bytes, NULL);
    lochi_span_remove(&segment->span);
    lochi_pool_unlink_handle(&pool->handles, segment);
    lochi_pool_uncount_handle(pool, segment->raw_bytes);
    if (pool->options.source)
        lochi_pool_set_aside(pool, segment);
    else
        lochi_free(segment);
    lochi_pool_drop_record(pool, block);
    return LOCH_OK;
}
