/* SPDX-License-Identifier: MIT */
/* Lanes, their epochs and events. */
#ifndef LOCHI_POOL_LANE_H
#define LOCHI_POOL_LANE_H

#include "memory/pool/state.h"

/* Finds or makes the lane of a stream, or of its capture; NULL with the status. Asks whether the stream is captured. */
pool_lane *lochi_pool_lane(lochi_pool *pool, loch_stream *stream, loch_status *status);
/* Finds the lane of a stream, or of a capture there; NULL when it has none. */
pool_lane *lochi_pool_find_lane(const lochi_pool *pool, const loch_stream *stream, uint64_t capture);
/* Ends the lanes of a stream that is about to end: behind an event, where one can be recorded. */
void lochi_pool_end_stream(lochi_pool *pool, loch_stream *stream);
/* Frees all lanes and events of a pool that ends. */
void lochi_pool_close_lanes(lochi_pool *pool);

/* Ends the present epoch with an event; false when that cannot be done now. */
bool lochi_pool_mark(lochi_pool *pool, pool_lane *lane);
/* Looks at the events under way. */
void lochi_pool_poll(lochi_pool *pool, pool_lane *lane);
/* Ends the present epoch once enough bytes wait for it. */
void lochi_pool_note_bytes(lochi_pool *pool, pool_lane *lane, size_t bytes);
/* Notes that bytes were freed in the order of a lane. */
void lochi_pool_note_freed(lochi_pool *pool, pool_lane *lane, size_t bytes);

/* Tells whether a lane's stream is under capture: then nothing can be recorded on it, nor the device be waited for. */
bool lochi_pool_is_under_capture(const lochi_pool *pool, const pool_lane *lane);
/* Makes the work of `lane` from now on wait, on the device, for an epoch of `other`. */
loch_status lochi_pool_wait_on_device(lochi_pool *pool, pool_lane *lane, pool_lane *other, uint64_t epoch);
/* Puts a lane behind all that is queued on another, once in a compaction. */
loch_status lochi_pool_follow(lochi_pool *pool, pool_lane *lane, pool_lane *other);
/* Waits on the host for an epoch of a lane. E_BUSY when its stream is captured and nothing was recorded before. */
loch_status lochi_pool_wait_for_epoch(lochi_pool *pool, pool_lane *lane, uint64_t epoch);
/* Waits on the host for the oldest event of each lane; false when there is none to wait for. */
bool lochi_pool_wait_on_host(lochi_pool *pool);
/* Waits for all work that may use the pool's memory, but for that of captures. E_BUSY when a stream is being captured, or what the
 * driver said. */
loch_status lochi_pool_wait_for_all(lochi_pool *pool);
/* Waits for graphs of captures that were not released. */
void lochi_pool_wait_for_graphs(lochi_pool *pool);

#endif
