/* SPDX-License-Identifier: MIT */
/* Ends a capture: its memory belongs to its stream again. */
#include "base/fail.h"
#include "memory/pool/cache.h"
#include "memory/pool/heap.h"
#include "memory/pool/idle.h"
#include "memory/pool/lane.h"
#include "memory/pool/outside.h"
#include "memory/pool/slab.h"
#include "memory/pool/wipe.h"

/* Gives the memory of a capture to the capture's stream. The memory must be idle and not cached by threads. */
static void capture_release_lanes(lochi_pool *pool, uint64_t capture)
{
    lochi_lock_assert_held(&pool->lock);
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (!lane->capture || lane->capture != capture) continue;
        lochi_pool_slab_trim(pool, lane);
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

loch_status loch_pool_release_capture(loch_allocator *pool, uint64_t capture_id)
{
    lochi_pool *self = lochi_pool_of(pool);
    if (!self) return LOCH_FAIL(INVALID, "\"%s\" is not a pool", loch_allocator_get_name(pool));
    lochi_pool_take_locks(self);
    bool is_known = false;
    for (const pool_lane *lane = self->lanes; lane; lane = lane->next)
        is_known |= capture_id && lane->capture == capture_id;
    loch_status status;
    if (is_known) {
        lochi_pool_go_outside(self);
        status = loch_device_sync(self->device); /* the last launch of the graph may still run */
        lochi_pool_come_back(self);
    } else {
        status = LOCH_FAIL(NOT_FOUND, "no memory is kept for capture %llu", (unsigned long long)capture_id);
    }
    if (status == LOCH_OK) {
        lochi_pool_flush_threads(self);
        status = lochi_pool_wipe_capture(self, capture_id);
    }
    if (status == LOCH_OK) capture_release_lanes(self, capture_id);
    lochi_pool_look_at_idle(self);
    lochi_pool_drop_locks(self);
    return status;
}
