/* SPDX-License-Identifier: MIT */
/* Device times of spans. A pair of timed events is recorded at the two ends of a span and read later. No failure here
 * reaches the program: if a time is not available, the span keeps its host time, and the thread's error record stays
 * unchanged. */
#include "engine/timeline/device.h"
#include "kit/backoff.h"
#include "base/fail.h"
#include "base/heap.h"
#include "device/stream_life.h"

#define TIMELINE_ANCHOR_FAR 1000000000 /* in ns; drivers measure long times less exactly (CUDA: in a float) */

/* --- clocks and pairs --- */

static void pair_destroy(timeline_pair *pair)
{
    loch_event_destroy(pair->start);
    loch_event_destroy(pair->end);
    lochi_free(pair);
}

void lochi_timeline_pair_return(timeline_record *record)
{
    record->pair->next = record->clock->unused;
    record->clock->unused = record->pair;
    record->pair = NULL;
    if (!record->has_device) record->clock = NULL;
}

void lochi_timeline_clocks_destroy(timeline_track *track)
{
    for (timeline_clock *clock = track->clocks, *next; clock; clock = next) {
        next = clock->next;
        for (timeline_pair *pair = clock->unused, *after; pair; pair = after) {
            after = pair->next;
            pair_destroy(pair);
        }
        loch_event_destroy(clock->anchor);
        loch_device_release(clock->device);
        lochi_free(clock);
    }
}

/* Records an event on a new stream, where nothing delays it. */
static loch_status clock_record_apart(loch_device *device, loch_event *event)
{
    const loch_stream_options options = {.size = sizeof options, .order = LOCH_STREAM_INDEPENDENT};
    loch_stream *apart;
    LOCH_TRY_RETURN(loch_stream_create(device, &options, &apart));
    const loch_status status = loch_event_record(event, apart);
    loch_stream_close(apart);
    return status;
}

/* Records the anchor of a clock. Without a stream of its own it passes when the work before the first span is done. */
static void clock_set_anchor(timeline_clock *clock, loch_stream *stream)
{
    if (loch_event_create(clock->device, LOCH_EVENT_TIMED, &clock->anchor) != LOCH_OK) return;
    if (clock_record_apart(clock->device, clock->anchor) == LOCH_OK) return;
    if (loch_event_record(clock->anchor, stream) == LOCH_OK) return;
    loch_event_destroy(clock->anchor);
    clock->anchor = NULL;
}

/* Returns the track's clock of the device. Returns NULL if there is no memory. Without an anchor, durations are known
 * and positions are not. */
static timeline_clock *clock_get(loch_timeline *timeline, timeline_track *track, loch_stream *stream)
{
    loch_device *device = loch_stream_get_device(stream);
    for (timeline_clock *clock = track->clocks; clock; clock = clock->next)
        if (clock->device == device) return clock;
    timeline_clock *clock = lochi_zalloc(sizeof *clock);
    if (!clock) return NULL;
    clock->device = loch_device_retain(device);
    /* The anchor event passes at this time or later. Spans that are measured correct the difference. */
    clock->offset_ns = (int64_t)lochi_timeline_now(timeline);
    clock_set_anchor(clock, stream);
    clock->next = track->clocks;
    lochi_track_lock(track);
    track->clocks = clock;
    lochi_track_unlock(track);
    return clock;
}

static timeline_pair *pair_create(loch_device *device)
{
    timeline_pair *pair = lochi_zalloc(sizeof *pair);
    if (!pair) return NULL;
    if (loch_event_create(device, LOCH_EVENT_TIMED, &pair->start) == LOCH_OK &&
        loch_event_create(device, LOCH_EVENT_TIMED, &pair->end) == LOCH_OK)
        return pair;
    pair_destroy(pair);
    return NULL;
}

static timeline_pair *pair_get(timeline_track *track, timeline_clock *clock)
{
    lochi_track_lock(track);
    timeline_pair *pair = clock->unused;
    if (pair) clock->unused = pair->next;
    lochi_track_unlock(track);
    return pair ? pair : pair_create(clock->device);
}

/* --- the two ends --- */

/* Tells whether events may be recorded on a stream. Under capture they would belong to the graph. A stream that cannot
 * be queried is skipped too. */
static bool device_can_record(loch_stream *stream)
{
    loch_capture_info capture = {.size = sizeof capture};
    return loch_stream_query_capture(stream, &capture) == LOCH_OK && !capture.active;
}

static void device_begin(loch_timeline *timeline, timeline_track *track, timeline_record *record, loch_stream *stream)
{
    if (!device_can_record(stream)) return;
    timeline_clock *clock = clock_get(timeline, track, stream);
    timeline_pair *pair = clock ? pair_get(track, clock) : NULL;
    if (!pair) return;
    record->clock = clock;
    record->pair = pair;
    record->inside = record->outer;
    while (record->inside && record->inside->clock != clock)
        record->inside = record->inside->outer;
    record->device_at_ns = (int64_t)lochi_timeline_now(timeline);
    if (loch_event_record(pair->start, stream) == LOCH_OK) {
        record->stream = lochi_stream_retain(stream);
        record->stream_id = loch_stream_get_id(stream);
        return;
    }
    lochi_track_lock(track);
    lochi_timeline_pair_return(record);
    lochi_track_unlock(track);
}

void lochi_timeline_device_begin(loch_timeline *timeline, timeline_track *track, timeline_record *record,
                                 loch_stream *stream)
{
    if (!loch_device_can(loch_stream_get_device(stream), LOCH_CAN_TIMING)) return;
    const loch_error saved = lochi_error_save();
    device_begin(timeline, track, record, stream);
    lochi_error_restore(&saved);
}

bool lochi_timeline_device_end(timeline_record *record)
{
    uint32_t mark;
    if (!lochi_stream_enter(record->stream, &mark)) return false; /* the program has closed the stream */
    const loch_error saved = lochi_error_save();
    const bool is_recorded =
        device_can_record(record->stream) && loch_event_record(record->pair->end, record->stream) == LOCH_OK;
    lochi_error_restore(&saved);
    lochi_stream_leave(mark);
    return is_recorded;
}

/* --- reading times; the caller holds the track's is_resolving --- */

void lochi_timeline_resolve_enter(const loch_timeline *timeline, timeline_track *track)
{
    lochi_lock_assert_held(&timeline->times);
    for (unsigned turn = 0; atomic_exchange_explicit(&track->is_resolving, true, memory_order_acquire);)
        lochi_backoff(&turn); /* the owner holds it, and does not wait for a device */
}

void lochi_timeline_resolve_leave(timeline_track *track)
{
    atomic_store_explicit(&track->is_resolving, false, memory_order_release);
}

/* Measures the nanoseconds from the anchor to the event. The event may lie before the anchor. */
static bool clock_measure(const timeline_clock *clock, loch_event *event, int64_t *out)
{
    uint64_t ns = 0, back_ns = 0;
    if (!clock->anchor) return false;
    if (loch_event_elapsed(clock->anchor, event, &ns) == LOCH_OK && ns) {
        *out = (int64_t)ns;
        return true;
    }
    const bool is_known = loch_event_elapsed(event, clock->anchor, &back_ns) == LOCH_OK;
    *out = -(int64_t)back_ns;
    return is_known;
}

/* Reads the device time of a span whose end event has passed. */
static void record_measure(timeline_record *record, timeline_track *track)
{
    timeline_clock *clock = record->clock;
    timeline_pair *pair = record->pair;
    uint64_t ns = 0;
    int64_t from_anchor_ns = 0;
    const bool is_timed = loch_event_elapsed(pair->start, pair->end, &ns) == LOCH_OK;
    const bool is_placed = is_timed && clock_measure(clock, pair->start, &from_anchor_ns);
    const int64_t at_ns = clock->anchor_ns + from_anchor_ns;
    if (is_placed && at_ns + clock->offset_ns < record->device_at_ns) /* the anchor passed later than assumed */
        clock->offset_ns = record->device_at_ns - at_ns;
    if (is_placed && from_anchor_ns > TIMELINE_ANCHOR_FAR) {
        loch_event *anchor = pair->start;
        pair->start = clock->anchor;
        clock->anchor = anchor;
        clock->anchor_ns = at_ns;
    }
    lochi_track_lock(track);
    record->has_device = is_timed;
    record->has_place = is_placed;
    record->device_ns = ns;
    record->device_at_ns = at_ns;
    record->offset_ns = clock->offset_ns;
    track->pending_first = record->next_pending;
    track->pending--;
    lochi_timeline_pair_return(record);
    lochi_track_unlock(track);
}

static timeline_record *track_first_pending(timeline_track *track)
{
    lochi_track_lock(track);
    timeline_record *record = track->pending ? track->pending_first : NULL;
    lochi_track_unlock(track);
    return record;
}

static size_t track_count_pending(timeline_track *track)
{
    lochi_track_lock(track);
    const size_t pending = track->pending;
    lochi_track_unlock(track);
    return pending;
}

void lochi_timeline_device_look(timeline_track *track)
{
    const size_t pending = track_count_pending(track);
    if (pending < TIMELINE_PENDING) track->look_at = TIMELINE_PENDING;
    if (pending < track->look_at) return;
    if (atomic_exchange_explicit(&track->is_resolving, true, memory_order_acquire))
        return; /* another thread is resolving */
    const loch_error saved = lochi_error_save();
    timeline_record *record;
    while ((record = track_first_pending(track)) && loch_event_query(record->pair->end) != LOCH_E_BUSY)
        record_measure(record, track);
    lochi_error_restore(&saved);
    /* the next look comes only after more spans, so that a slow device does not cause a look at each span */
    track->look_at = track_count_pending(track) + TIMELINE_PENDING;
    lochi_timeline_resolve_leave(track);
}

void lochi_timeline_device_wait(loch_timeline *timeline, timeline_track *track)
{
    if (!track_first_pending(track)) return;
    const loch_error saved = lochi_error_save();
    lochi_lock_take(&timeline->times);
    lochi_timeline_resolve_enter(timeline, track);
    for (timeline_record *record; (record = track_first_pending(track));) {
        const loch_status status = loch_event_sync(record->pair->end);
        (void)status; /* if the wait fails, reading the time fails too */
        record_measure(record, track);
    }
    lochi_timeline_resolve_leave(track);
    lochi_lock_drop(&timeline->times);
    lochi_error_restore(&saved);
}
