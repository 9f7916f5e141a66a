/* SPDX-License-Identifier: MIT */
/* Walking over the spans of a timeline (walk.c). */
#ifndef LOCHI_TIMELINE_WALK_H
#define LOCHI_TIMELINE_WALK_H

#include "engine/timeline/state.h"

/* A span as it is shown. */
typedef struct timeline_view {
    loch_span_record record; /* of an open one: the time so far */
    bool is_open;
    uint64_t begin_ns, length_ns; /* on the device's clock if it was timed there, else the host's */
    bool has_device;
    uint64_t stream_id;
    const char *memory; /* the allocator's name; NULL: nothing was noted */
} timeline_view;

typedef struct timeline_cursor {
    loch_timeline *timeline;
    timeline_track *track;
    timeline_chunk *chunk;
    size_t index;
    uint64_t now_ns;
} timeline_cursor;

/* Stand around every walk: nothing is freed in between. */
void lochi_timeline_enter(loch_timeline *timeline);
void lochi_timeline_leave(loch_timeline *timeline);

/* Begins a walk over all spans, open ones too. A span comes before those inside it. */
timeline_cursor lochi_timeline_cursor(loch_timeline *timeline);

/* Finds the next span; false when there is none. Waits for its device's time. */
bool lochi_timeline_next(timeline_cursor *cursor, timeline_view *out);

#endif
