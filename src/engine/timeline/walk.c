/* SPDX-License-Identifier: MIT */
/* Walks over the spans of a timeline, counts them, forgets them. */
#include "engine/timeline/walk.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "engine/timeline/chunk.h"
#include "engine/timeline/device.h"

/* --- walks in progress --- */

void lochi_timeline_enter(loch_timeline *timeline)
{
    lochi_lock_take(&timeline->lock);
    timeline->walkers++;
    lochi_lock_drop(&timeline->lock);
}

void lochi_timeline_leave(loch_timeline *timeline)
{
    lochi_lock_take(&timeline->lock);
    if (!--timeline->walkers && timeline->needs_reclaim) lochi_timeline_reclaim(timeline);
    lochi_lock_drop(&timeline->lock);
}

static timeline_track *timeline_next_track(loch_timeline *timeline, timeline_track *track)
{
    lochi_lock_take(&timeline->lock);
    timeline_track *next = track ? track->next : timeline->first;
    lochi_lock_drop(&timeline->lock);
    return next;
}

/* --- walking --- */

timeline_cursor lochi_timeline_cursor(loch_timeline *timeline)
{
    return (timeline_cursor){
        .timeline = timeline, .track = timeline_next_track(timeline, NULL), .now_ns = lochi_timeline_now(timeline)};
}

/* Finds the next record of the track that is neither forgotten nor being filled. Returns NULL at the end. The track's
 * lock is held. */
static timeline_record *cursor_find(timeline_cursor *cursor)
{
    if (!cursor->chunk) cursor->chunk = cursor->track->first;
    for (timeline_chunk *chunk; (chunk = cursor->chunk); cursor->chunk = chunk->next, cursor->index = 0) {
        while (cursor->index < chunk->used) {
            timeline_record *record = &chunk->records[cursor->index++];
            const timeline_state state = atomic_load_explicit(&record->state, memory_order_acquire);
            if (state == TIMELINE_OPEN || state == TIMELINE_ENDED) return record;
        }
        if (!chunk->next) return NULL;
    }
    return NULL;
}

/* Sets where the device worked on a record. Drivers round positions and durations, so a span is cut to the spans around
 * it on its stream. The track's lock is held. */
static void view_place(const timeline_record *record, timeline_view *out)
{
    int64_t offset_ns = record->offset_ns, from_ns = record->device_at_ns;
    int64_t to_ns = from_ns + (int64_t)record->device_ns;
    for (const timeline_record *around = record->inside; around; around = around->inside) {
        if (!around->has_place) continue;
        offset_ns = around->offset_ns;
        if (around->stream_id != record->stream_id) continue;
        const int64_t around_to_ns = around->device_at_ns + (int64_t)around->device_ns;
        if (to_ns > around_to_ns) to_ns = around_to_ns;
        if (from_ns < around->device_at_ns) from_ns = around->device_at_ns;
    }
    if (from_ns > to_ns) from_ns = to_ns;
    out->begin_ns = from_ns + offset_ns > 0 ? (uint64_t)(from_ns + offset_ns) : 0;
    out->length_ns = (uint64_t)(to_ns - from_ns);
}

/* Fills the view of a record. The track's lock is held. */
static void view_fill(const timeline_record *record, uint64_t now_ns, timeline_view *out)
{
    out->is_open = atomic_load_explicit(&record->state, memory_order_relaxed) == TIMELINE_OPEN;
    const uint64_t end_ns = !out->is_open ? record->end_ns : now_ns > record->start_ns ? now_ns : record->start_ns;
    out->has_device = record->has_device;
    out->stream_id = record->stream_id;
    out->thread = record->thread->name;
    out->memory = record->memory ? record->memory->name : NULL;
    out->record = (loch_span_record){
        .name = record->name,
        .level = record->level,
        .thread = record->thread->number,
        .depth = record->depth,
        .start_ns = record->start_ns,
        .host_ns = end_ns - record->start_ns,
        .device_ns = record->device_ns,
        .device = record->has_device ? loch_device_get_name(record->clock->device) : "",
        .flops = record->flops,
        .bytes = record->bytes,
        .used_begin = record->used_begin,
        .used_end = out->is_open ? record->used_begin : record->used_end,
    };
    out->begin_ns = record->start_ns;
    out->length_ns = record->has_device ? record->device_ns : out->record.host_ns;
    if (record->has_place) view_place(record, out);
}

bool lochi_timeline_next(timeline_cursor *cursor, timeline_view *out)
{
    while (cursor->track) {
        timeline_track *track = cursor->track;
        lochi_track_lock(track);
        timeline_record *record = cursor_find(cursor);
        bool is_pending =
            record && record->pair && atomic_load_explicit(&record->state, memory_order_relaxed) == TIMELINE_ENDED;
        if (record && !is_pending) view_fill(record, cursor->now_ns, out);
        lochi_track_unlock(track);
        if (is_pending) {
            lochi_timeline_device_wait(cursor->timeline, track);
            lochi_track_lock(track);
            view_fill(record, cursor->now_ns, out);
            lochi_track_unlock(track);
        }
        if (record) return true;
        cursor->track = timeline_next_track(cursor->timeline, track);
        cursor->chunk = NULL;
        cursor->index = 0;
    }
    return false;
}

loch_status loch_timeline_walk(loch_timeline *timeline, loch_span_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!timeline || !visitor) return LOCH_FAIL(INVALID, "a walk over spans needs a timeline and a visitor");
    loch_status status = LOCH_OK;
    lochi_timeline_enter(timeline);
    timeline_cursor cursor = lochi_timeline_cursor(timeline);
    for (timeline_view view; status == LOCH_OK && lochi_timeline_next(&cursor, &view);)
        if (!view.is_open) status = visitor(&view.record, user);
    lochi_timeline_leave(timeline);
    return status;
}

/* --- counting and forgetting --- */

void loch_timeline_count(loch_timeline *timeline, size_t *kept, uint64_t *lost)
{
    size_t ended = 0;
    uint64_t lost_count = timeline ? atomic_load_explicit(&timeline->lost, memory_order_relaxed) : 0;
    timeline_track *track = timeline ? timeline_next_track(timeline, NULL) : NULL;
    for (; track; track = timeline_next_track(timeline, track)) { /* tracks exist until the timeline is destroyed */
        lochi_track_lock(track);
        ended += track->ended;
        lost_count += track->lost;
        lochi_track_unlock(track);
    }
    if (kept) *kept = ended;
    if (lost) *lost = lost_count;
}

/* Forgets the ended spans of a track. The caller holds the track's is_resolving, so no thread reads device times
 * meanwhile. */
static void track_forget(timeline_track *track)
{
    lochi_track_lock(track);
    track->kept = 0;
    for (timeline_chunk *chunk = track->first; chunk; chunk = chunk->next) {
        for (size_t i = 0; i < chunk->used; i++) {
            timeline_record *record = &chunk->records[i];
            const timeline_state state = atomic_load_explicit(&record->state, memory_order_acquire);
            if (state == TIMELINE_ENDED) {
                if (record->pair) lochi_timeline_pair_return(record);
                atomic_store_explicit(&record->state, TIMELINE_FORGOTTEN, memory_order_relaxed);
                chunk->live--;
            } else if (state == TIMELINE_RESERVED || (state == TIMELINE_OPEN && record->thread == track->thread)) {
                track->kept++;
            }
        }
    }
    track->ended = 0;
    track->lost = 0;
    track->pending = 0;
    track->pending_first = NULL;
    lochi_track_unlock(track);
}

void loch_timeline_forget(loch_timeline *timeline)
{
    if (!timeline) return;
    atomic_store_explicit(&timeline->lost, 0, memory_order_relaxed);
    lochi_lock_take(&timeline->times);
    timeline_track *track = timeline_next_track(timeline, NULL);
    for (; track; track = timeline_next_track(timeline, track)) {
        lochi_timeline_resolve_enter(timeline, track);
        track_forget(track);
        lochi_timeline_resolve_leave(track);
    }
    lochi_lock_take(&timeline->lock);
    timeline->needs_reclaim = true;
    if (!timeline->walkers) lochi_timeline_reclaim(timeline);
    lochi_lock_drop(&timeline->lock);
    lochi_lock_drop(&timeline->times);
}
