/* SPDX-License-Identifier: MIT */
/* Carries out plans: remaps idle handles, creates new ones, takes raw segments. */
#include "memory/pool/supply.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/handle.h"
#include "memory/pool/lane.h"
#include "memory/pool/place.h"
#include "memory/pool/price.h"
#include "memory/pool/segment.h"
#include <loch/host.h>

static loch_status supply_fill_gap(lochi_pool *pool, const pool_want *want, pool_gap *gap, pool_block *near)
{
    while (gap->start < gap->end) {
        size_t bytes = lochi_pool_choose_handle(pool, want->bytes);
        if (bytes > gap->end - gap->start) bytes = gap->end - gap->start;
        pool_handle *handle;
        LOCH_TRY_RETURN(lochi_pool_create_some(pool, bytes, &handle));
        pool_block *bare = lochi_pool_find_near(near, gap->start);
        const loch_status status = lochi_pool_map_free(pool, handle, bare, gap->start, want->lane);
        if (status != LOCH_OK) {
            lochi_pool_destroy_loose(pool, handle);
            return status;
        }
        gap->start += handle->bytes;
    }
    return LOCH_OK;
}

/* Carries out the planned remaps. Records stay until everything is settled, so the records in the plan remain valid. */
static loch_status supply_move(lochi_pool *pool, const pool_want *want, const pool_place *plan)
{
    for (size_t i = 0; i < plan->sources_count; i++) {
        const pool_origin *source = &plan->sources[i];
        if (!source->to) continue;
        pool_block *bare = lochi_pool_find_near(plan->spot.hint, source->to);
        if (!source->block) {
            LOCH_TRY_RETURN(lochi_pool_map_free(pool, source->handle, bare, source->to, want->lane));
            continue;
        }
        pool_block *block =
            lochi_pool_find_near(source->block, source->handle->at); /* the block may have been cut meanwhile */
        LOCH_TRY_RETURN(lochi_pool_move_free(pool, source->handle, block, bare, source->to, want->lane));
    }
    return LOCH_OK;
}

static loch_status supply_revive(lochi_pool *pool, const pool_want *want, const pool_place *plan)
{
    for (size_t i = 0; i < plan->revived_count; i++) {
        const pool_handle *handle = plan->revived[i]->handle;
        pool_block *home = lochi_pool_find_near(handle->home, handle->at);
        LOCH_TRY_RETURN(lochi_pool_revive(pool, plan->revived[i], home, want->lane));
    }
    return LOCH_OK;
}

static loch_status supply_carry_out(lochi_pool *pool, const pool_want *want, pool_source source)
{
    pool_place plan = {0};
    loch_status status = LOCH_OK;
    if (source == POOL_EXTRA &&
        !lochi_pool_may_take_extra(pool, want, pool->cell_bytes)) /* every plan lacks at least a cell */
        return LOCH_FAIL(FRAGMENTED, "the pool does not hold more memory than needed now");
    if (!lochi_pool_plan_place(pool, want, &plan)) {
        lochi_free(plan.sources);
        return LOCH_FAIL(FRAGMENTED, "the pool has no free addresses left");
    }
    if (source == POOL_EXTRA) plan.sources_count = 0;
    const size_t left = lochi_pool_assign(want, &plan);
    if (source == POOL_EXTRA && !lochi_pool_may_take_extra(pool, want, plan.missing))
        status = LOCH_FAIL(FRAGMENTED, "the pool does not hold more memory than needed now");
    if (left && source == POOL_MOVED) status = LOCH_FAIL(FRAGMENTED, "no idle memory can be mapped where it is needed");
    if (left && status == LOCH_OK) status = lochi_pool_check_limit(pool, left);
    if (status == LOCH_OK) status = supply_revive(pool, want, &plan);
    if (status == LOCH_OK) status = supply_move(pool, want, &plan);
    for (size_t g = 0; status == LOCH_OK && g < plan.gaps_count; g++)
        status = supply_fill_gap(pool, want, &plan.gaps[g], plan.spot.hint);
    lochi_pool_settle(pool);
    lochi_free(plan.sources);
    return status;
}

/* Takes a raw segment for the request, or a smaller one if the device has no larger one. */
static loch_status supply_take_segment(lochi_pool *pool, const pool_want *want)
{
    const size_t slack = want->alignment > pool->cell_bytes ? want->alignment : 0;
    const size_t needed = lochi_pool_round(pool, want->bytes + slack);
    const size_t wished = lochi_pool_choose_handle(pool, want->bytes);
    if (wished > needed) {
        const loch_error saved = lochi_error_save();
        if (lochi_pool_take_segment(pool, wished, want->lane) == LOCH_OK) return LOCH_OK;
        lochi_error_restore(&saved);
    }
    return lochi_pool_take_segment(pool, needed, want->lane);
}

loch_status lochi_pool_supply(lochi_pool *pool, const pool_want *want, pool_source source)
{
    lochi_lock_assert_held(&pool->lock);
    if (pool->range && source != POOL_MOVED) return LOCH_FAIL(LIMIT, "a child has no memory beyond its range");
    if (!pool->is_virtual)
        return source != POOL_MOVED ? supply_take_segment(pool, want)
                                    : LOCH_FAIL(FRAGMENTED, "raw memory cannot be remapped");
    const uint64_t moved = pool->handles_moved + pool->handles_revived;
    const uint64_t start_ns = pool->is_timed ? loch_host_now_ns() : 0, moves = pool->handles_moved;
    if (!pool->since_ns) pool->since_ns = start_ns;
    const loch_status status = supply_carry_out(pool, want, source);
    if (pool->is_timed && pool->handles_moved != moves) lochi_pool_note_time(pool, start_ns);
    if (pool->handles_moved + pool->handles_revived != moved)
        lochi_pool_mark(pool, want->lane); /* old addresses are unmapped after this event */
    return status;
}
