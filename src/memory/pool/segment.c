/* SPDX-License-Identifier: MIT */
/* Raw segments: the memory of pools without virtual memory, and the range of a child. A segment is one handle and
 * stays at its address. */
#include "memory/pool/segment.h"
#include "base/fail.h"
#include "base/text.h"
#include "base/heap.h"
#include "base/logging.h"
#include "memory/pool/cells.h"
#include "memory/pool/handle.h"
#include "memory/pool/heap.h"
#include "memory/pool/lane.h"
#include "memory/pool/poison.h"

/* Allocates raw memory for a segment and counts it in. */
static loch_status segment_get_raw(lochi_pool *pool, pool_handle *segment, size_t bytes)
{
    segment->raw_bytes = segment->bytes = bytes;
    LOCH_TRY_RETURN(lochi_pool_claim(pool, bytes));
    loch_status status = loch_raw_alloc(pool->device, pool->kind, bytes, pool->cell_bytes, &segment->raw);
    if (status != LOCH_OK) lochi_pool_unclaim(pool, bytes);
    if (status == LOCH_E_UNSUPPORTED) { /* the driver aligns less: take more bytes */
        segment->raw_bytes = bytes + pool->cell_bytes;
        LOCH_TRY_RETURN(lochi_pool_claim(pool, segment->raw_bytes));
        status = loch_raw_alloc(pool->device, pool->kind, segment->raw_bytes, 0, &segment->raw);
        if (status != LOCH_OK) lochi_pool_unclaim(pool, segment->raw_bytes);
    }
    segment->at = ((uintptr_t)segment->raw + pool->cell_bytes - 1) & ~(uintptr_t)(pool->cell_bytes - 1);
    if (status == LOCH_OK) lochi_ranges_let(segment->raw, &pool->tenant);
    return status;
}

/* Undoes segment_get_raw. */
static void segment_return_raw(lochi_pool *pool, const pool_handle *segment)
{
    lochi_pool_unclaim(pool, segment->raw_bytes);
    lochi_ranges_let(segment->raw, NULL);
    if (loch_raw_free(segment->raw) != LOCH_OK)
        LOCHI_LOG(ERROR, "a raw segment of %s is lost: %s", LOCHI_SIZE(segment->raw_bytes), loch_error_get()->sentence);
}

/* Makes the memory of a segment one free block. Its cells exist, and a record is stocked. */
static void segment_enter(lochi_pool *pool, pool_handle *segment, pool_lane *lane, uint64_t epoch)
{
    lochi_pool_set_cells(pool, segment->at, segment->bytes, segment);
    segment->mappings = 1;
    lochi_pool_link_handle(&pool->handles, segment);
    lochi_pool_count_handle(pool, segment->raw_bytes);
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

loch_status lochi_pool_take_segment(lochi_pool *pool, size_t bytes, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    LOCH_TRY_RETURN(lochi_pool_check_limit(pool, bytes));
    if (!lochi_pool_stock_records(pool, 1)) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    pool_handle *segment = lochi_zalloc(sizeof *segment);
    if (!segment) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a segment");
    loch_status status;
    LOCH_TRY(segment_get_raw(pool, segment, bytes), fail);
    LOCH_TRY(lochi_pool_make_cells(pool, segment->at, bytes), fail_raw);
    segment_enter(pool, segment, lane, 0);
    return LOCH_OK;
fail_raw:
    segment_return_raw(pool, segment);
fail:
    lochi_free(segment);
    return status;
}

loch_status lochi_pool_adopt_range(lochi_pool *pool, size_t bytes, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    if (!lochi_pool_stock_records(pool, 1)) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    LOCH_TRY_RETURN(lochi_pool_make_cells(pool, (uintptr_t)pool->range, bytes));
    pool_handle *segment = lochi_zalloc(sizeof *segment);
    if (!segment) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a segment");
    segment->raw_bytes = segment->bytes = bytes;
    segment->at = (uintptr_t)pool->range;
    segment_enter(pool, segment, lane, lane->epoch);
    lochi_pool_mark(pool, lane); /* other streams use the range without a wait after this event */
    return LOCH_OK;
}

loch_status lochi_pool_drop_segment(lochi_pool *pool, pool_handle *segment, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_show(pool, segment->at, segment->bytes);
    LOCH_TRY_RETURN(loch_raw_free(segment->raw));
    lochi_pool_set_cells(pool, segment->at, segment->bytes, NULL);
    lochi_pool_unlink_handle(&pool->handles, segment);
    lochi_pool_uncount_handle(pool, segment->raw_bytes);
    lochi_free(segment);
    if (!block) return LOCH_OK;
    lochi_pool_bins_remove(&block->lane->bins, block);
    lochi_pool_drop_record(pool, block);
    return LOCH_OK;
}
