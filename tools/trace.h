/* SPDX-License-Identifier: MIT */
/* Traces of allocations, ready to be replayed. They come from any recording that libloch_insight reads
 * (docs/replay.md): traces, files of the recorder, memory snapshots of PyTorch; plain or compressed.
 *
 * A loaded trace has a compact form for the loop that replays it: 16 bytes for each event, slots of a small array
 * instead of ids (a slot is reused after its block is freed), and consecutive stream numbers. Rare properties
 * (alignment, tag, reservation) are stored separately. All memory of a trace comes from the system and not from malloc,
 * so that it neither warms nor fills an allocator under test. */
#ifndef LOCH_TOOL_TRACE_H
#define LOCH_TOOL_TRACE_H

#include "kit/array.h"
#include <loch/insight.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum trace_kind {
    TRACE_ALLOC,         /* `bytes` */
    TRACE_FREE,          /* free on the stream of the allocation */
    TRACE_ALLOC_SPECIAL, /* `bytes` is an index into `specials` */
    TRACE_FREE_ON,       /* free on `stream`, which is not the stream of the allocation */
    TRACE_USE,           /* use on a further `stream` */
    TRACE_RESIZE,        /* new size of a growable block; `bytes` is an index into `specials` */
    TRACE_CLOCK          /* not an event of the trace: sets the time to `bytes` nanoseconds (trace_add_clock) */
} trace_kind;

typedef struct trace_event {
    uint64_t bytes;
    uint32_t slot;
    uint16_t stream; /* an index below trace_log.streams; 0 is the default stream */
    uint16_t kind;   /* a trace_kind */
} trace_event;

typedef struct trace_special {
    size_t bytes, alignment;
    size_t max_bytes; /* reserved for a growable block; 0 for other blocks */
    loch_tag tag;
} trace_special;

typedef struct trace_log {
    lochi_array events;      /* of trace_event */
    lochi_array times_us;    /* array of uint64_t, one for each event; never falling */
    lochi_array specials;    /* of trace_special */
    size_t slots;            /* number of slots that the events need */
    size_t streams;          /* number of streams that the events name, including the default stream */
    uint64_t peak_requested; /* the most bytes that the program holds at a time */
    uint64_t duration_us;    /* time of the last event */
} trace_log;

/* Reads a recording: "-" for standard input, .gz and .zst by gzip and zstd. A block that is not growable and is resized
 * becomes a free and an allocation; moves, ranges and driver calls are left out. On failure returns false after a line
 * on standard error that names the file, and the line if there is one. Call trace_unload in either case. */
bool trace_load(trace_log *trace, const char *path);

/* Makes a trace of a recording that is in memory. Fails as trace_load does. */
bool trace_translate(trace_log *trace, const loch_recording *recording);

void trace_unload(trace_log *trace);

static inline const trace_event *trace_events(const trace_log *trace)
{
    return trace->events.data;
}

/* Copies the events and adds TRACE_CLOCK events between them, one whenever at least `step_us` have passed since the
 * last. Returns false if there is no memory. */
bool trace_add_clock(const trace_log *trace, uint64_t step_us, lochi_array *out);

#endif
