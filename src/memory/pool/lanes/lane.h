/* SPDX-License-Identifier: MIT */
/* Lanes, with their epochs and events. */
#ifndef LOCHI_POOL_LANE_H
#define LOCHI_POOL_LANE_H

#include "memory/pool/state/state.h"

/* Finds or makes the lane of a stream, or of its current capture. Asks the driver whether the stream is captured.
 * Returns NULL with the status. */
pool_lane *lochi_pool_lane(lochi_pool *pool, loch_stream *stream, loch_status *status);
/* Finds the lane of a stream, or of a capture on it; NULL for none. */
pool_lane *lochi_pool_find_lane(const lochi_pool *pool, const loch_stream *stream, uint64_t capture);
/* Closes the lanes of a stream that is about to be destroyed. Records a last event if possible. */
void lochi_pool_end_stream(lochi_pool *pool, loch_stream *stream);
/* Frees all lanes and events of a pool that ends. */
void lochi_pool_close_lanes(lochi_pool *pool);

/* Ends the present epoch with an event. Returns false if that is not possible now. */
bool lochi_pool_mark(lochi_pool *pool, pool_lane *lane);
/* Polls the pending events of a lane. */
void lochi_pool_poll(lochi_pool *pool, pool_lane *lane);
/* Ends the present epoch once enough bytes wait for it. */
void lochi_pool_note_bytes(lochi_pool *pool, pool_lane *lane, size_t bytes);
/* Notes that bytes were freed in the order of a lane. */
void lochi_pool_note_freed(lochi_pool *pool, pool_lane *lane, size_t bytes);

/* Tells whether all work of a lane is captured: then nothing can be ordered after it. The work of a pool of graphs may
 * be captured or not; its streams are asked. */
static inline bool lochi_pool_is_in_capture(const pool_lane *lane)
{
    return lane->capture && lane->capture != POOL_CAPTURE_SHARED;
}

/* Tells whether a lane's stream is captured. Then no event can be recorded on it, and the device cannot be waited
 * for. */
bool lochi_pool_is_under_capture(const lochi_pool *pool, const pool_lane *lane);
/* Orders the later work of `lane` after an epoch of `other`, with a wait on the device. */
loch_status lochi_pool_wait_on_device(lochi_pool *pool, pool_lane *lane, pool_lane *other, uint64_t epoch);
/* Orders `lane` after all work queued on `other`, once in a compaction. */
loch_status lochi_pool_follow(lochi_pool *pool, pool_lane *lane, pool_lane *other);
/* Waits on the host for an epoch of a lane. E_BUSY if its stream is captured and no event was recorded before. */
loch_status lochi_pool_wait_for_epoch(lochi_pool *pool, pool_lane *lane, uint64_t epoch);
/* Waits on the host for the oldest event of each lane. Returns false if no lane has an event. */
bool lochi_pool_wait_on_host(lochi_pool *pool);
/* Waits on the host for all work that may use the pool's memory, except for that of captures. E_BUSY if a stream is
 * being captured. Otherwise returns the driver's failure. */
loch_status lochi_pool_wait_for_all(lochi_pool *pool);
/* Waits on the host for all work of the device: a graph may run on any stream. E_BUSY if a stream of the device is
 * being captured: the wait would end the capture. A lost device runs nothing. */
loch_status lochi_pool_wait_for_device(lochi_pool *pool);
/* Waits for graphs of captures that were not released. */
void lochi_pool_wait_for_graphs(lochi_pool *pool);

/* Records events for memory that was freed since the last one, and polls: a stream without work has passed at once. */
void lochi_pool_mark_freed(lochi_pool *pool);

#endif
