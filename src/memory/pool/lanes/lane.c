/* SPDX-License-Identifier: MIT */
/* Lanes: the memory of each stream, with its epochs and events.
 *
 * A program with one stream needs no events, except for those after which old addresses are unmapped. Where streams
 * share memory, an event ends an epoch once enough bytes were freed in it. So the memory has usually passed when
 * another stream needs it, and one event serves many blocks.
 *
 * A lane whose stream was destroyed is reused for the next new stream after its last event has passed: then the old
 * stream uses none of its memory. So there are never more lanes than streams at one time. */
#include "memory/pool/lanes/lane.h"
#include "base/fail.h"
#include "base/heap.h"
#include "device/stream.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/state/state.h"

#define LANE_EPOCH_BYTES ((size_t)1 << 20) /* bytes freed in an epoch before it ends, at least */
#define LANE_EPOCH_PART 256                /* and at least this part of the pool's memory */

/* --- events --- */

static loch_status lane_get_capture(const lochi_pool *pool, loch_stream *stream, uint64_t *out)
{
    *out = 0;
    if (!pool->policy.is_watched || stream == pool->default_stream) return LOCH_OK;
    loch_capture_info info = {.size = sizeof info};
    LOCH_TRY_RETURN(loch_stream_query_capture(stream, &info));
    if (info.active) *out = info.id ? info.id : UINT64_MAX;
    return LOCH_OK;
}

static loch_status lane_take_event(lochi_pool *pool, loch_event **out)
{
    if (!pool->events_count) return loch_event_create(pool->device, LOCH_EVENT_PLAIN, out);
    *out = pool->events[--pool->events_count].event;
    return LOCH_OK;
}

/* Keeps an event for its next use. An event that a thread waits for outside is kept by that thread. */
static void lane_drop_event(lochi_pool *pool, loch_event *event)
{
    if (event == pool->awaited) {
        pool->awaited = NULL;
        return;
    }
    if (pool->events_count == pool->events_capacity) {
        const size_t capacity = pool->events_capacity ? 2 * pool->events_capacity : 16;
        pool_mark *grown = lochi_realloc(pool->events, capacity * sizeof *grown);
        if (!grown) {
            loch_event_destroy(event);
            return;
        }
        pool->events = grown;
        pool->events_capacity = capacity;
    }
    pool->events[pool->events_count++].event = event;
}

static pool_mark *lane_mark_at(const pool_lane *lane, size_t index)
{
    return &lane->marks[(lane->marks_first + index) & (lane->marks_capacity - 1)]; /* the capacity is a power of two */
}

/* Makes room for one more pending event. Removes passed events first, so that they do not pile up while the lane is
 * not polled. */
static bool lane_grow_marks(lochi_pool *pool, pool_lane *lane)
{
    if (lane->marks_count < lane->marks_capacity) return true;
    if (lane->marks_count) lochi_pool_poll(pool, lane);
    if (lane->marks_count < lane->marks_capacity / 2) return true;
    const size_t capacity = lane->marks_capacity ? 2 * lane->marks_capacity : 16;
    pool_mark *grown = lochi_alloc_array(capacity, sizeof *grown);
    if (!grown) return false;
    for (size_t i = 0; lane->marks_capacity && i < lane->marks_count; i++)
        grown[i] = *lane_mark_at(lane, i);
    lochi_free(lane->marks);
    lane->marks = grown;
    lane->marks_first = 0;
    lane->marks_capacity = capacity;
    return true;
}

/* Records an event for the present epoch. */
static loch_status lane_record(lochi_pool *pool, pool_lane *lane)
{
    uint64_t capture = lochi_pool_is_in_capture(lane);
    if (lane->is_closed) return LOCH_FAIL(BUSY, "no event can be recorded on a stream that was destroyed");
    if (!capture) LOCH_TRY_RETURN(lane_get_capture(pool, lane->stream, &capture));
    if (capture) return LOCH_FAIL(BUSY, "a stream that is captured cannot be waited for");
    if (!lane_grow_marks(pool, lane)) return LOCH_FAIL(HOST_MEMORY, "no host memory for an event of a stream");
    loch_event *event = NULL;
    LOCH_TRY_RETURN(lane_take_event(pool, &event));
    const loch_status status = loch_event_record(event, lane->stream);
    if (status != LOCH_OK) {
        lane_drop_event(pool, event);
        return status;
    }
    lane->marks_count++;
    *lane_mark_at(lane, lane->marks_count - 1) = (pool_mark){event, lane->epoch};
    lane->unmarked_bytes = 0;
    pool->counts.events_recorded++;
    return LOCH_OK;
}

/* Ends the epoch. Returns why that is not possible. */
static loch_status lane_mark(lochi_pool *pool, pool_lane *lane)
{
    if (lane->done == UINT64_MAX) return LOCH_OK;
    LOCH_TRY_RETURN(lane_record(pool, lane));
    lochi_pool_begin_epoch(lane);
    return LOCH_OK;
}

bool lochi_pool_mark(lochi_pool *pool, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    const loch_error saved = lochi_error_save();
    const loch_status status = lane_mark(pool, lane);
    lochi_error_restore(&saved);
    return status == LOCH_OK;
}

/* Completes the oldest event. */
static void lane_pass(lochi_pool *pool, pool_lane *lane)
{
    pool_mark *mark = lane_mark_at(lane, 0);
    lane->done = mark->epoch;
    lane_drop_event(pool, mark->event);
    lane->marks_first++;
    lane->marks_count--;
}

void lochi_pool_poll(lochi_pool *pool, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    const loch_error saved = lochi_error_save();
    while (lane->marks_count) {
        const loch_status status = loch_event_query(lane_mark_at(lane, 0)->event);
        if (status != LOCH_OK && !lochi_is_gone(status)) break; /* a lost device runs nothing */
        lane_pass(pool, lane);
    }
    lochi_error_restore(&saved);
}

void lochi_pool_note_bytes(lochi_pool *pool, pool_lane *lane, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    lane->unmarked_bytes += bytes;
    const size_t part = pool->reserved / LANE_EPOCH_PART;
    if (lane->unmarked_bytes >= (part > LANE_EPOCH_BYTES ? part : LANE_EPOCH_BYTES)) lochi_pool_mark(pool, lane);
}

void lochi_pool_note_freed(lochi_pool *pool, pool_lane *lane, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    if (pool->is_hungry && lane->done != UINT64_MAX) lochi_pool_note_bytes(pool, lane, bytes);
}

/* --- waiting --- */

bool lochi_pool_is_under_capture(const lochi_pool *pool, const pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    uint64_t capture = 0;
    return !lane->is_closed && lane_get_capture(pool, lane->stream, &capture) == LOCH_OK && capture;
}

loch_status lochi_pool_wait_on_device(lochi_pool *pool, pool_lane *lane, pool_lane *other, uint64_t epoch)
{
    lochi_lock_assert_held(&pool->lock);
    if (lane == other || lochi_pool_has_passed(other, epoch)) return LOCH_OK;
    if (pool->policy.is_unwaiting) return LOCH_FAIL(BUSY, "the streams of the pool do not wait for each other");
    if (lochi_pool_is_in_capture(lane) || lane->is_closed)
        return LOCH_FAIL(BUSY, "the stream is captured or was destroyed: it cannot wait for another stream");
    if (epoch == other->epoch && !other->is_closed) LOCH_TRY_RETURN(lane_mark(pool, other));
    for (size_t i = 0; i < other->marks_count; i++) {
        const pool_mark *mark = lane_mark_at(other, i);
        if (mark->epoch < epoch) continue;
        uint64_t capture;
        LOCH_TRY_RETURN(lane_get_capture(pool, lane->stream, &capture));
        if (capture) return LOCH_FAIL(BUSY, "a stream that is captured cannot wait for another stream");
        LOCH_TRY_RETURN(loch_stream_wait(lane->stream, mark->event));
        pool->counts.waits_on_device++;
        return LOCH_OK;
    }
    return LOCH_FAIL(BUSY, "no event was recorded after the work of the other stream");
}

/* Orders a lane after another lane. Once in a compaction is enough while the pool's lock is held: work that is queued
 * later uses no movable block, because it would have to pin the block first. */
loch_status lochi_pool_follow(lochi_pool *pool, pool_lane *lane, pool_lane *other)
{
    lochi_lock_assert_held(&pool->lock);
    if (other->followed == pool->moving.orders) return LOCH_OK;
    LOCH_TRY_RETURN(lochi_pool_wait_on_device(pool, lane, other, other->epoch));
    other->followed = pool->moving.orders;
    return LOCH_OK;
}

/* Waits for a pending event outside the lock. Another thread may poll the lane meanwhile. */
static loch_status lane_await(lochi_pool *pool, loch_event *event)
{
    pool->awaited = event;
    lochi_pool_go_outside(pool);
    const loch_status status = loch_event_sync(event);
    lochi_pool_come_back(pool);
    const bool is_pending = pool->awaited != NULL; /* otherwise another thread has found that it passed */
    pool->awaited = NULL;
    if (!is_pending) lane_drop_event(pool, event);
    return status;
}

/* Completes the oldest events, up to that of an epoch. */
static void lane_pass_until(lochi_pool *pool, pool_lane *lane, uint64_t epoch)
{
    while (lane->marks_count && lane_mark_at(lane, 0)->epoch <= epoch)
        lane_pass(pool, lane);
}

bool lochi_pool_wait_on_host(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    const loch_error saved = lochi_error_save();
    bool has_waited = false;
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (!lane->marks_count) continue;
        const pool_mark mark = *lane_mark_at(lane, 0);
        const loch_status status = lane_await(pool, mark.event);
        if (status != LOCH_OK && !lochi_is_gone(status)) continue;
        lane_pass_until(pool, lane, mark.epoch);
        has_waited = true;
    }
    lochi_error_restore(&saved);
    pool->counts.waits_on_host += has_waited;
    return has_waited;
}

loch_status lochi_pool_wait_for_epoch(lochi_pool *pool, pool_lane *lane, uint64_t epoch)
{
    lochi_lock_assert_held(&pool->lock);
    if (epoch == lane->epoch && !lochi_pool_has_passed(lane, epoch)) lochi_pool_mark(pool, lane);
    while (!lochi_pool_has_passed(lane, epoch) && lane->marks_count) {
        LOCH_TRY_RETURN(loch_event_sync(lane_mark_at(lane, 0)->event));
        lane_pass(pool, lane);
        pool->counts.waits_on_host++;
    }
    if (lochi_pool_has_passed(lane, epoch)) return LOCH_OK;
    if (lane->is_closed) return loch_device_sync(pool->device);
    if (lochi_pool_is_under_capture(pool, lane)) /* waiting for the stream would invalidate the capture */
        return LOCH_FAIL(BUSY, "a stream that is captured cannot be waited for");
    return loch_stream_sync(lane->stream);
}

/* Waits for all events of a lane that are pending now. Returns false if that is not possible. */
static bool lane_await_all(lochi_pool *pool, pool_lane *lane)
{
    const uint64_t last = lane->marks_count ? lane_mark_at(lane, lane->marks_count - 1)->epoch : 0;
    while (lane->marks_count && lane_mark_at(lane, 0)->epoch <= last) {
        const pool_mark mark = *lane_mark_at(lane, 0);
        if (lane_await(pool, mark.event) != LOCH_OK) return false;
        lane_pass_until(pool, lane, mark.epoch);
    }
    return true;
}

loch_status lochi_pool_wait_for_all(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    const loch_error saved = lochi_error_save();
    bool is_certain = true, is_captured = false;
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (lane->done == UINT64_MAX || lochi_pool_is_in_capture(lane)) continue; /* a capture keeps its memory */
        if (!lane->is_closed && !lochi_pool_mark(pool, lane)) {
            if (lochi_pool_is_under_capture(pool, lane))
                is_captured = true;
            else
                is_certain = false;
        }
        if (!lane_await_all(pool, lane)) is_certain = false;
    }
    loch_status status = LOCH_OK;
    if (!is_certain) {
        lochi_pool_go_outside(pool);
        status = loch_device_sync(pool->device); /* a lost device runs nothing */
        lochi_pool_come_back(pool);
    }
    lochi_error_restore(&saved);
    return status == LOCH_OK && is_captured ? LOCH_E_BUSY : status;
}

loch_status lochi_pool_wait_for_device(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    lochi_pool_go_outside(pool);
    loch_status status = lochi_device_is_captured(pool->device)
                             ? LOCH_FAIL(BUSY, "%s cannot be waited for while a stream is captured", pool->device->name)
                             : loch_device_sync(pool->device);
    lochi_pool_come_back(pool);
    return lochi_is_gone(status) ? LOCH_OK : status;
}

void lochi_pool_wait_for_graphs(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    const loch_error saved = lochi_error_save();
    bool has_graphs = false;
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next)
        has_graphs |= lane->capture != 0;
    if (has_graphs) (void)!loch_device_sync(pool->device);
    lochi_error_restore(&saved);
}

/* --- lanes --- */

/* Finds a lane whose stream was destroyed and whose work has passed; NULL for none. */
static pool_lane *lane_find_idle(lochi_pool *pool)
{
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (!lane->is_closed || lane->capture) continue;
        lochi_pool_poll(pool, lane);
        if (lochi_pool_has_passed(lane, lane->epoch)) return lane;
    }
    return NULL;
}

/* Gives the free memory of a lane to other lanes. Returns whether the lane is empty. */
static bool lane_vacate(lochi_pool *pool, const pool_lane *lane)
{
    pool_lane *heir = pool->lanes;
    while (heir && (heir == lane || heir->capture))
        heir = heir->next;
    bool is_empty = true;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        if (block->lane != lane) continue;
        if (heir && lochi_pool_state(block) == POOL_FREE && !block->is_piece &&
            lochi_pool_has_passed(lane, lochi_pool_epoch(block)))
            block = lochi_pool_hand_over(pool, block, heir);
        else
            is_empty = false;
    }
    return is_empty;
}

/* Finds an empty lane for a capture. It must be empty because other streams cannot use a capture's memory. Returns
 * NULL for none. */
static pool_lane *lane_find_empty(lochi_pool *pool)
{
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (lane->capture || !(lane->is_spare || lane->is_closed)) continue;
        lochi_pool_poll(pool, lane);
        if (!lane->marks_count && lane_vacate(pool, lane)) return lane;
    }
    return NULL;
}

static pool_lane *lane_make(lochi_pool *pool, loch_stream *stream, uint64_t capture)
{
    pool_lane *lane = capture ? lane_find_empty(pool) : lane_find_idle(pool);
    if (lane) {
        lochi_stream_release(lane->stream);
        lane->is_closed = lane->is_spare = false;
        lochi_pool_begin_epoch(lane);
    } else {
        lane = lochi_zalloc(sizeof *lane);
        if (!lane) return NULL;
        lane->epoch = 1;
        pool_lane **end = &pool->lanes;
        while (*end)
            end = &(*end)->next;
        *end = lane;
    }
    if (lochi_device_is_at_once(pool->device)) lane->done = UINT64_MAX;
    lane->stream = lochi_stream_retain(stream);
    lane->capture = capture;
    return lane;
}

pool_lane *lochi_pool_find_lane(const lochi_pool *pool, const loch_stream *stream, uint64_t capture)
{
    lochi_lock_assert_held(&pool->lock);
    pool_lane *lane = pool->lanes;
    while (lane && (lane->stream != stream || lane->capture != capture || lane->is_closed || lane->is_spare))
        lane = lane->next;
    return lane;
}

pool_lane *lochi_pool_lane(lochi_pool *pool, loch_stream *stream, loch_status *status)
{
    lochi_lock_assert_held(&pool->lock);
    uint64_t capture = pool->is_of_graphs ? POOL_CAPTURE_SHARED : 0;
    if (pool->policy.is_at_once)
        stream = pool->default_stream; /* queued work is done at once: one lane serves all streams */
    *status = pool->policy.is_asking ? lane_get_capture(pool, stream, &capture) : LOCH_OK;
    if (*status != LOCH_OK) return NULL;
    pool_lane *lane = lochi_pool_find_lane(pool, stream, capture);
    if (!lane) lane = lane_make(pool, stream, capture);
    if (!lane) *status = LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a stream");
    return lane;
}

void lochi_pool_end_stream(lochi_pool *pool, loch_stream *stream)
{
    lochi_lock_assert_held(&pool->lock);
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (lane->stream != stream || lane->is_closed) continue;
        /* Blocks freed later are ordered after this event too: the stream gets no more work. */
        const loch_error saved = lochi_error_save();
        if (lane->done != UINT64_MAX && lane_record(pool, lane) != LOCH_OK && loch_stream_sync(stream) == LOCH_OK)
            lane->done = lane->epoch;
        lochi_error_restore(&saved);
        lane->is_closed = true;
    }
}

void lochi_pool_close_lanes(lochi_pool *pool)
{
    while (pool->lanes) {
        pool_lane *lane = pool->lanes;
        pool->lanes = lane->next;
        for (size_t i = 0; i < lane->marks_count; i++)
            loch_event_destroy(lane_mark_at(lane, i)->event);
        lochi_free(lane->marks);
        lochi_free_aligned(lane->transfer);
        lochi_stream_release(lane->stream);
        lochi_free(lane);
    }
    while (pool->events_count)
        loch_event_destroy(pool->events[--pool->events_count].event);
    lochi_free(pool->events);
}

void lochi_pool_mark_freed(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (lane->freed == lane->epoch && !lane->capture && !lane->is_closed && lane->done != UINT64_MAX)
            lochi_pool_mark(pool, lane);
        if (lane->marks_count) lochi_pool_poll(pool, lane);
    }
}
