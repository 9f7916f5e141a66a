/* SPDX-License-Identifier: MIT */
/* Walks over the spans of a timeline (walk.c). */
#ifndef LOCHI_TIMELINE_WALK_H
#define LOCHI_TIMELINE_WALK_H

#include "engine/timeline/state.h"

/* A span as it is shown to visitors and printers. */
typedef struct timeline_view {
    loch_span_record record; /* for an open span: the time so far */
    bool is_open;
    uint64_t begin_ns, length_ns; /* on the device's clock if the device timed it, otherwise on the host's */
    bool has_device;
    uint64_t stream_id;
    const char *thread; /* name of the thread; "" if unknown */
    const char *memory; /* name of the allocator; NULL: no bytes were recorded */
} timeline_view;

typedef struct timeline_cursor {
    loch_timeline *timeline;
    timeline_track *track;
    timeline_chunk *chunk;
    size_t index;
    uint64_t now_ns;
} timeline_cursor;

/* Begin and end a walk. No record is freed in between. */
void lochi_timeline_enter(loch_timeline *timeline);
void lochi_timeline_leave(loch_timeline *timeline);

/* Begins at the first of all spans, open ones included. A span comes before the spans inside it. */
timeline_cursor lochi_timeline_cursor(loch_timeline *timeline);

/* Finds the next span and waits for its device time. Returns false at the end. */
bool lochi_timeline_next(timeline_cursor *cursor, timeline_view *out);

#endif
