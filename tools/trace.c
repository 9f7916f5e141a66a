/* SPDX-License-Identifier: MIT */
/* Translates recordings into the compact form that is replayed: slots instead of blocks, consecutive streams. */
#include "trace.h"
#include "tool.h"

#include <loch/insight.h>

#define TRACE_STREAMS_MAX 65536

/* --- the translation --- */

typedef struct trace_reader {
    trace_log *trace;
    const loch_recording *recording;
    const char *path;
    lochi_array slots;      /* array of uint32_t: slot of each block */
    lochi_array free_slots; /* array of uint32_t: a stack, so that few slots are used and stay in the cache */
    lochi_array sizes;      /* array of uint64_t: present bytes of each block */
    lochi_array tags;       /* array of loch_tag: of each tag of the recording; 0 before its first use */
    lochi_array streams;    /* array of uint32_t: index + 1 of each stream of the recording; 0 before its first use */
    uint64_t requested;     /* bytes that the program holds */
} trace_reader;

static bool reader_has_no_memory(const trace_reader *reader)
{
    tool_fail("%s: no memory for the trace", reader->path);
    return false;
}

static uint16_t reader_stream(trace_reader *reader, uint16_t number)
{
    uint32_t *streams = reader->streams.data;
    if (!streams[number]) streams[number] = (uint32_t)++reader->trace->streams;
    return (uint16_t)(streams[number] - 1);
}

static bool reader_emit(trace_reader *reader, uint64_t time_ns, trace_kind kind, uint64_t bytes, uint32_t slot,
                        uint16_t stream)
{
    lochi_array *events = &reader->trace->events, *times = &reader->trace->times_us;
    if (!lochi_array_reserve(events, events->count + 1, sizeof(trace_event)) ||
        !lochi_array_reserve(times, times->count + 1, sizeof(uint64_t)))
        return reader_has_no_memory(reader);
    ((trace_event *)events->data)[events->count++] = (trace_event){bytes, slot, stream, (uint16_t)kind};
    ((uint64_t *)times->data)[times->count++] = time_ns / 1000;
    return true;
}

/* Takes a free slot, or a new one. There are never more slots than blocks. */
static uint32_t reader_take_slot(trace_reader *reader)
{
    lochi_array *slots = &reader->free_slots;
    return slots->count ? ((const uint32_t *)slots->data)[--slots->count] : (uint32_t)reader->trace->slots++;
}

/* Finds the process's tag for a tag of the recording. */
static bool reader_tag(const trace_reader *reader, uint32_t tag, loch_tag *out)
{
    loch_tag *tags = reader->tags.data;
    if (tag && !tags[tag] &&
        loch_tag_create(loch_recording_get_name(reader->recording, LOCH_RECORDING_TAG, tag), &tags[tag]) != LOCH_OK) {
        tool_fail("%s: %s", reader->path, loch_error_get()->sentence);
        return false;
    }
    *out = tag ? tags[tag] : 0;
    return true;
}

/* Counts the new size of a block. */
static void reader_size(trace_reader *reader, const loch_recording_event *event)
{
    uint64_t *size = (uint64_t *)reader->sizes.data + event->subject;
    reader->requested += event->value - *size;
    *size = event->value;
    if (reader->requested > reader->trace->peak_requested) reader->trace->peak_requested = reader->requested;
}

/* Emits a request for the size that an event gives a block: `kind`, or a plain allocation where that says all. */
static bool reader_request(trace_reader *reader, const loch_recording_event *event, trace_kind kind)
{
    const loch_recording_block *block = loch_recording_get_blocks(reader->recording) + event->subject;
    const uint32_t slot = ((const uint32_t *)reader->slots.data)[event->subject];
    const uint16_t stream = reader_stream(reader, block->stream);
    lochi_array *specials = &reader->trace->specials;
    trace_special special = {.bytes = (size_t)event->value,
                             .alignment = block->alignment ? (size_t)1 << block->alignment : 0,
                             .max_bytes = (size_t)block->max_bytes};
    reader_size(reader, event);
    if (!reader_tag(reader, block->tag, &special.tag)) return false;
    if (!special.alignment && !special.tag && !special.max_bytes)
        return reader_emit(reader, event->time_ns, TRACE_ALLOC, event->value, slot, stream);
    if (!lochi_array_reserve(specials, specials->count + 1, sizeof special)) return reader_has_no_memory(reader);
    ((trace_special *)specials->data)[specials->count++] = special;
    return reader_emit(reader, event->time_ns, kind, specials->count - 1, slot, stream);
}

static bool reader_alloc(trace_reader *reader, const loch_recording_event *event)
{
    ((uint32_t *)reader->slots.data)[event->subject] = reader_take_slot(reader);
    return reader_request(reader, event, TRACE_ALLOC_SPECIAL);
}

static bool reader_free(trace_reader *reader, const loch_recording_event *event, uint16_t stream)
{
    const loch_recording_block *block = loch_recording_get_blocks(reader->recording) + event->subject;
    const uint32_t slot = ((const uint32_t *)reader->slots.data)[event->subject];
    lochi_array *slots = &reader->free_slots;
    if (!lochi_array_reserve(slots, slots->count + 1, sizeof(uint32_t))) return reader_has_no_memory(reader);
    ((uint32_t *)slots->data)[slots->count++] = slot;
    reader->requested -= ((const uint64_t *)reader->sizes.data)[event->subject];
    ((uint64_t *)reader->sizes.data)[event->subject] = 0;
    return reader_emit(reader, event->time_ns, stream == block->stream ? TRACE_FREE : TRACE_FREE_ON, 0, slot,
                       reader_stream(reader, stream));
}

/* A growable block stays where it is. The pool has resized others in place, which another pool may not be able to. */
static bool reader_resize(trace_reader *reader, const loch_recording_event *event)
{
    const loch_recording_block *block = loch_recording_get_blocks(reader->recording) + event->subject;
    if (block->max_bytes) return reader_request(reader, event, TRACE_RESIZE);
    return reader_free(reader, event, block->stream) && reader_alloc(reader, event);
}

static bool reader_event(trace_reader *reader, const loch_recording_event *event)
{
    switch (event->kind) {
    case LOCH_RECORDED_ALLOC: return reader_alloc(reader, event);
    case LOCH_RECORDED_FREE: return reader_free(reader, event, event->stream);
    case LOCH_RECORDED_USE:
        return reader_emit(reader, event->time_ns, TRACE_USE, 0, ((const uint32_t *)reader->slots.data)[event->subject],
                           reader_stream(reader, event->stream));
    case LOCH_RECORDED_RESIZE: return reader_resize(reader, event);
    default: return true;
    }
}

static bool reader_translate(trace_reader *reader, const loch_recording_info *info)
{
    const loch_recording_event *events = loch_recording_get_events(reader->recording);
    if (!lochi_array_reserve(&reader->slots, info->blocks + 1, sizeof(uint32_t)) ||
        !lochi_array_reserve(&reader->sizes, info->blocks + 1, sizeof(uint64_t)) ||
        !lochi_array_reserve(&reader->tags, info->tags + 1, sizeof(loch_tag)) ||
        !lochi_array_reserve(&reader->streams, TRACE_STREAMS_MAX, sizeof(uint32_t)))
        return reader_has_no_memory(reader);
    reader_stream(reader, 0);
    reader->trace->duration_us = info->duration_ns / 1000;
    for (uint64_t i = 0; i < info->events; i++)
        if (!reader_event(reader, &events[i])) return false;
    return true;
}

/* --- whole traces --- */

bool trace_translate(trace_log *trace, const loch_recording *recording)
{
    *trace = (trace_log){.slots = 0};
    loch_recording_info info = {.size = sizeof info};
    if (loch_recording_get_info(recording, &info) != LOCH_OK) {
        tool_fail("%s", loch_error_get()->sentence);
        return false;
    }
    trace_reader reader = {.trace = trace, .recording = recording, .path = info.path};
    const bool is_good = reader_translate(&reader, &info);
    lochi_array_free(&reader.slots);
    lochi_array_free(&reader.free_slots);
    lochi_array_free(&reader.sizes);
    lochi_array_free(&reader.tags);
    lochi_array_free(&reader.streams);
    return is_good;
}

bool trace_load(trace_log *trace, const char *path)
{
    *trace = (trace_log){.slots = 0};
    tool_progress progress = {.label = "reading"};
    const loch_recording_options options = {.size = sizeof options, .progress = tool_progress_part, .user = &progress};
    loch_recording *recording;
    const loch_status status = loch_recording_load(path, &options, &recording);
    tool_progress_end(&progress);
    if (status != LOCH_OK) {
        tool_fail("%s", loch_error_get()->sentence);
        return false;
    }
    const bool is_good = trace_translate(trace, recording);
    loch_recording_destroy(recording);
    return is_good;
}

void trace_unload(trace_log *trace)
{
    lochi_array_free(&trace->events);
    lochi_array_free(&trace->times_us);
    lochi_array_free(&trace->specials);
}

bool trace_add_clock(const trace_log *trace, uint64_t step_us, lochi_array *out)
{
    const trace_event *events = trace_events(trace);
    const uint64_t *times_us = trace->times_us.data;
    uint64_t last_us = 0;
    *out = (lochi_array){.data = NULL};
    if (!lochi_array_reserve(out, 2 * trace->events.count + 1, sizeof *events)) return false;
    trace_event *to = out->data;
    for (size_t i = 0; i < trace->events.count; i++) {
        if (times_us[i] - last_us >= step_us) {
            last_us = times_us[i];
            to[out->count++] = (trace_event){last_us * 1000, 0, 0, TRACE_CLOCK};
        }
        to[out->count++] = events[i];
    }
    return true;
}
