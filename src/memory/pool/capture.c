/* SPDX-License-Identifier: MIT */
/* Ends captures: their memory belongs to their streams again. A pool of graphs ends its one capture when its last
 * reference is released. */
#include "base/fail.h"
#include "memory/pool/front/front.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/trim/trim.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"
#include "memory/pool/pool.h"

/* Gives the memory of a capture to the capture's stream. The memory must be idle and not cached by threads. */
static void capture_release_lanes(lochi_pool *pool, uint64_t capture)
{
    lochi_lock_assert_held(&pool->lock);
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (!lane->capture || lane->capture != capture) continue;
        lochi_pool_slab_trim(pool, lane);
        lochi_pool_poll(pool, lane); /* events that pass later would lower `done` */
        lane->is_spare = lochi_pool_find_lane(pool, lane->stream, 0) != NULL;
        lane->capture = 0;
        lane->done = lane->epoch;
        lochi_pool_begin_epoch(lane);
        if (lane->is_closed) lane->done = lane->epoch; /* no event will end the epoch of a closed lane */
    }
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        if (!block->is_captured || block->lane->capture) continue;
        block->is_captured = false;
        if (lochi_pool_state(block) != POOL_FREE) pool->captured_bytes -= block->bytes;
    }
}

/* Ends a capture that has lanes: waits for the device, because the last launch of a graph may still run, and gives the
 * memory to the streams. */
static loch_status capture_end(lochi_pool *pool, uint64_t capture)
{
    lochi_pool_assert_both(pool);
    LOCH_TRY_RETURN(lochi_pool_wait_for_device(pool));
    lochi_pool_flush_threads(pool);
    LOCH_TRY_RETURN(lochi_pool_wipe_capture(pool, capture));
    if (pool->is_wiped) LOCH_TRY_RETURN(lochi_pool_wait_for_device(pool)); /* for the fills */
    capture_release_lanes(pool, capture);
    return LOCH_OK;
}

loch_status loch_pool_release_capture(loch_allocator *pool, uint64_t capture_id)
{
    lochi_pool *self = lochi_pool_of(pool);
    if (!self) return LOCH_FAIL(INVALID, "\"%s\" is not a pool", loch_allocator_get_name(pool));
    lochi_pool_take_locks(self);
    bool is_known = false;
    for (const pool_lane *lane = self->lanes; lane && !self->is_of_graphs; lane = lane->next)
        is_known |= capture_id && lane->capture == capture_id;
    const loch_status status =
        is_known ? capture_end(self, capture_id)
                 : LOCH_FAIL(NOT_FOUND, "no memory is kept for capture %llu", (unsigned long long)capture_id);
    lochi_pool_look_at_idle(self);
    lochi_pool_drop_locks(self);
    return status;
}

/* Makes a pool of graphs an ordinary one that keeps no free memory. Nothing changes if the device cannot be waited for:
 * then the memory goes back when the pool ends. */
static void capture_retire(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    if (capture_end(pool, POOL_CAPTURE_SHARED) != LOCH_OK) return;
    pool->is_of_graphs = pool->is_small_capped = false;
    pool->is_obedient = true;
    pool->idle = 1; /* what is freed from now on goes back */
    lochi_pool_trim(pool, 0);
}

void lochi_pool_retire(lochi_pool *pool)
{
    if (!pool->is_of_graphs) return;
    const loch_error saved = lochi_error_save();
    lochi_pool_take_locks(pool);
    capture_retire(pool);
    lochi_pool_drop_locks(pool);
    lochi_error_restore(&saved);
}
