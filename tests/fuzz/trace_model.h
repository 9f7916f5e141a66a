/* SPDX-License-Identifier: MIT */
/* Loads a trace from an input and holds what was loaded to what a replay relies on. */
#ifndef LOCH_FUZZ_TRACE_MODEL_H
#define LOCH_FUZZ_TRACE_MODEL_H

#include "fuzz.h"
#include "tool.h"
#include "trace.h"

static size_t trace_sentences;

/* Receives the messages of the reader, in place of the function that prints them on standard error. */
int tool_fail(const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    const int length = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    FUZZ_EXPECT(length > 0);
    trace_sentences++;
    return TOOL_FAILED;
}

typedef struct trace_slot {
    uint64_t bytes;
    uint16_t stream;
    bool is_live;
} trace_slot;

static uint64_t trace_event_bytes(const trace_log *trace, const trace_event *event)
{
    if (event->kind != TRACE_ALLOC_SPECIAL) return event->bytes;
    FUZZ_EXPECT(event->bytes < trace->specials.count);
    const trace_special *special = (const trace_special *)trace->specials.data + event->bytes;
    FUZZ_EXPECT((special->alignment & (special->alignment - 1)) == 0);
    return special->bytes;
}

/* One event changes one slot, as a program would that holds blocks. */
static void trace_step(const trace_log *trace, const trace_event *event, trace_slot *slots, uint64_t *live)
{
    FUZZ_EXPECT(event->slot < trace->slots && event->stream < trace->streams);
    trace_slot *slot = &slots[event->slot];
    switch (event->kind) {
    case TRACE_ALLOC:
    case TRACE_ALLOC_SPECIAL:
        FUZZ_EXPECT(!slot->is_live);
        *slot = (trace_slot){trace_event_bytes(trace, event), event->stream, true};
        *live += slot->bytes;
        break;
    case TRACE_FREE:
    case TRACE_FREE_ON:
        FUZZ_EXPECT(slot->is_live && (event->kind == TRACE_FREE) == (event->stream == slot->stream));
        slot->is_live = false;
        *live -= slot->bytes;
        break;
    default: FUZZ_EXPECT(event->kind == TRACE_USE && slot->is_live);
    }
}

static void trace_expect(const trace_log *trace)
{
    const trace_event *events = trace_events(trace);
    const uint64_t *times = trace->times_us.data;
    FUZZ_EXPECT(trace->times_us.count == trace->events.count && trace->slots <= trace->events.count);
    trace_slot *slots = calloc(trace->slots + 1, sizeof *slots);
    FUZZ_EXPECT(slots);
    uint64_t live = 0, peak = 0, last = 0;
    for (size_t i = 0; i < trace->events.count; i++) {
        FUZZ_EXPECT(times[i] >= last && times[i] <= trace->duration_us);
        last = times[i];
        trace_step(trace, &events[i], slots, &live);
        if (live > peak) peak = live;
    }
    FUZZ_EXPECT(peak == trace->peak_requested);
    free(slots);
}

static void trace_try(const fuzz_input *input)
{
    trace_log trace;
    lochi_array clocked;
    trace_sentences = 0;
    fuzz_begin();
    const bool is_good = trace_load(&trace, fuzz_file(input));
    FUZZ_EXPECT(trace_sentences == (is_good ? 0 : 1));
    if (is_good) {
        trace_expect(&trace);
        FUZZ_EXPECT(trace_add_clock(&trace, 5, &clocked) && clocked.count >= trace.events.count);
        lochi_array_free(&clocked);
    }
    trace_unload(&trace);
}

#endif
