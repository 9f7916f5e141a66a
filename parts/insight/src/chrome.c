/* SPDX-License-Identifier: MIT */
/* A trace in the Trace Event Format, for Perfetto and chrome://tracing.
 *
 * Each device is a process with counters (requested, requested by tag, reserved) and a track of driver calls. The
 * program is a process with its threads; failures are instants there. The largest blocks are slices from allocation to
 * free. A long recording has too many changes for a browser: then time is cut into equal parts, and each part has the
 * highest moment and the last one. So every peak is in the trace. */
#include "kit/text.h"
#include "format.h"
#include <stdlib.h>
#include <string.h>

#define TAGS_MAX 8u         /* tags with a counter of their own; the others are summed */
#define SAMPLES_EXACT 50000 /* up to so many changes all are written */
#define PARTS 10000u        /* otherwise: parts of the time */
#define BLOCKS_MAX 1000u    /* blocks with a slice */
#define PROGRAM 1u          /* process of the program; devices follow */
#define LANES_MAX 32u       /* tracks for driver calls of a device that overlap */

/* What a device holds. */
typedef struct chrome_level {
    uint64_t requested;
    uint64_t tags[TAGS_MAX + 1]; /* the last one: all other tags */
} chrome_level;

typedef struct chrome_device {
    chrome_level now, highest;
    uint64_t highest_ns, last_ns; /* times of `highest` and of the last change */
    uint64_t part;                /* present part of the time */
    bool has_changed;             /* since the last sample */
    uint64_t reserved;
} chrome_device;

typedef struct chrome_writer {
    const loch_recording *recording;
    FILE *file;
    bool has_events;         /* a comma is needed */
    lochi_array devices;     /* of chrome_device */
    lochi_array places;      /* of uint32_t: counter of each tag */
    uint32_t tags[TAGS_MAX]; /* tags with a counter */
    size_t tag_count;
    lochi_array sizes; /* of uint64_t: present bytes of each block */
    uint64_t part_ns;  /* length of a part of the time; 1: every moment is a part */
} chrome_writer;

static uint32_t chrome_process(uint32_t device)
{
    return PROGRAM + 1 + device;
}

/* --- events --- */

/* Begins an event and leaves it open for more members. Times are microseconds with three digits behind the point. */
static void event_begin(chrome_writer *writer, char phase, const char *name, uint64_t time_ns, uint32_t process)
{
    fprintf(writer->file, "%s{\"ph\":\"%c\",\"pid\":%u,\"ts\":%llu.%03u,\"name\":", writer->has_events ? ",\n" : "",
            phase, process, (unsigned long long)(time_ns / 1000), (unsigned)(time_ns % 1000));
    lochi_text_put_json(writer->file, name);
    writer->has_events = true;
}

static void event_end(chrome_writer *writer)
{
    fputs("}", writer->file);
}

static void put_member(chrome_writer *writer, const char *key, uint64_t number)
{
    fprintf(writer->file, ",\"%s\":%llu", key, (unsigned long long)number);
}

/* Names a process, or a thread of it. */
static void put_name(chrome_writer *writer, const char *what, const char *name, uint32_t process, uint32_t thread)
{
    event_begin(writer, 'M', what, 0, process);
    put_member(writer, "tid", thread);
    fputs(",\"args\":{\"name\":", writer->file);
    lochi_text_put_json(writer->file, name);
    fputs("}", writer->file);
    event_end(writer);
}

static void put_counter(chrome_writer *writer, const char *name, uint32_t device, uint64_t time_ns, uint64_t bytes)
{
    event_begin(writer, 'C', name, time_ns, chrome_process(device));
    fprintf(writer->file, ",\"args\":{\"bytes\":%llu}", (unsigned long long)bytes);
    event_end(writer);
}

/* --- counters --- */

static void put_level(chrome_writer *writer, uint32_t device, uint64_t time_ns, const chrome_level *level)
{
    put_counter(writer, "requested", device, time_ns, level->requested);
    if (!writer->tag_count) return;
    event_begin(writer, 'C', "requested by tag", time_ns, chrome_process(device));
    fputs(",\"args\":{", writer->file);
    for (size_t i = 0; i < writer->tag_count; i++) {
        const char *name = loch_recording_get_name(writer->recording, LOCH_RECORDING_TAG, writer->tags[i]);
        lochi_text_put_json(writer->file, *name ? name : "no tag");
        fprintf(writer->file, ":%llu,", (unsigned long long)level->tags[i]);
    }
    fprintf(writer->file, "\"other tags\":%llu}", (unsigned long long)level->tags[TAGS_MAX]);
    event_end(writer);
}

/* Writes the samples of the part that ends. */
static void device_flush(chrome_writer *writer, uint32_t index)
{
    chrome_device *device = (chrome_device *)writer->devices.data + index;
    if (!device->has_changed) return;
    if (device->highest.requested > device->now.requested)
        put_level(writer, index, device->highest_ns, &device->highest);
    put_level(writer, index, device->last_ns, &device->now);
    device->has_changed = false;
}

/* Changes what a device holds. */
static void device_change(chrome_writer *writer, const loch_recording_event *event, uint64_t bytes)
{
    const loch_recording *recording = writer->recording;
    const loch_recording_block *block = (const loch_recording_block *)recording->blocks.data + event->subject;
    const uint32_t index = lochi_insight_recording_get_device(recording, block->allocator);
    if (index >= writer->devices.count) return;
    chrome_device *device = (chrome_device *)writer->devices.data + index;
    uint64_t *before = (uint64_t *)writer->sizes.data + event->subject;
    const uint64_t part = event->time_ns / writer->part_ns;
    if (part != device->part) device_flush(writer, index);
    device->part = part;
    device->now.requested += bytes - *before;
    device->now.tags[((const uint32_t *)writer->places.data)[block->tag]] += bytes - *before;
    *before = bytes;
    if (!device->has_changed || device->now.requested > device->highest.requested) {
        device->highest = device->now;
        device->highest_ns = event->time_ns;
    }
    device->last_ns = event->time_ns;
    device->has_changed = true;
}

typedef struct chrome_tag {
    uint64_t now, peak;
    uint32_t tag;
} chrome_tag;

static int tag_compare(const void *a, const void *b)
{
    const chrome_tag *one = a, *other = b;
    if (one->peak != other->peak) return one->peak > other->peak ? -1 : 1;
    return (one->tag > other->tag) - (one->tag < other->tag);
}

/* Chooses the tags with the highest peaks. Returns false if there is no memory. */
static bool writer_choose_tags(chrome_writer *writer)
{
    const loch_recording *recording = writer->recording;
    const loch_recording_block *blocks = recording->blocks.data;
    const loch_recording_event *events = recording->events.data;
    const size_t count = recording->info.tags;
    lochi_array tags = {.data = NULL};
    uint64_t *sizes = writer->sizes.data;
    size_t changes = 0;
    if (!lochi_array_reserve(&tags, count, sizeof(chrome_tag))) return false;
    chrome_tag *all = tags.data;
    for (uint32_t i = 0; i < count; i++)
        all[i].tag = i;
    for (size_t i = 0; i < recording->events.count; i++) {
        const bool is_free = events[i].kind == LOCH_RECORDED_FREE;
        if (!is_free && events[i].kind != LOCH_RECORDED_ALLOC && events[i].kind != LOCH_RECORDED_RESIZE) continue;
        chrome_tag *tag = &all[blocks[events[i].subject].tag];
        uint64_t *size = &sizes[events[i].subject];
        const uint64_t after = is_free ? 0 : events[i].value;
        tag->now += after - *size;
        *size = after;
        if (tag->now > tag->peak) tag->peak = tag->now;
        changes++;
    }
    if (recording->blocks.count) memset(sizes, 0, recording->blocks.count * sizeof *sizes);
    writer->part_ns = changes > SAMPLES_EXACT ? recording->info.duration_ns / PARTS + 1 : 1;
    qsort(all, count, sizeof *all, tag_compare);
    uint32_t *places = writer->places.data;
    for (size_t i = 0; i < count; i++) {
        const bool is_own = i < TAGS_MAX && all[i].peak && count > 1;
        places[all[i].tag] = is_own ? (uint32_t)i : TAGS_MAX;
        if (is_own) writer->tags[writer->tag_count++] = all[i].tag;
    }
    lochi_array_free(&tags);
    return true;
}

/* --- driver calls --- */

typedef struct chrome_call {
    uint64_t start_ns, duration_ns;
    uint32_t event;
    uint32_t device;
} chrome_call;

static int call_compare(const void *a, const void *b)
{
    const chrome_call *one = a, *other = b;
    if (one->device != other->device) return one->device < other->device ? -1 : 1;
    if (one->start_ns != other->start_ns) return one->start_ns < other->start_ns ? -1 : 1;
    return (one->event > other->event) - (one->event < other->event);
}

static void put_call(chrome_writer *writer, const chrome_call *call, uint32_t lane)
{
    const loch_recording_event *event = (const loch_recording_event *)writer->recording->events.data + call->event;
    const char *name = loch_recording_get_name(writer->recording, LOCH_RECORDING_CALL, event->subject);
    event_begin(writer, 'X', name, call->start_ns, chrome_process(call->device));
    put_member(writer, "tid", chrome_process(call->device) * 1000 + lane);
    fprintf(writer->file, ",\"dur\":%llu.%03u,\"args\":{\"thread\":", (unsigned long long)(call->duration_ns / 1000),
            (unsigned)(call->duration_ns % 1000));
    lochi_text_put_json(writer->file, loch_recording_get_name(writer->recording, LOCH_RECORDING_THREAD, event->thread));
    fputs("}", writer->file);
    event_end(writer);
}

/* Writes driver calls. Slices of one track must not overlap, so calls of several threads get further tracks. Returns
 * false if there is no memory. */
static bool writer_put_calls(chrome_writer *writer)
{
    const loch_recording_event *events = writer->recording->events.data;
    lochi_array calls = {.data = NULL};
    for (uint32_t i = 0; i < writer->recording->events.count; i++) {
        if (events[i].kind != LOCH_RECORDED_CALL) continue;
        const uint64_t duration = events[i].value < events[i].time_ns ? events[i].value : events[i].time_ns;
        const chrome_call call = {events[i].time_ns - duration, duration, i, events[i].stream};
        if (!lochi_array_append(&calls, &call, 1, sizeof call)) {
            lochi_array_free(&calls);
            return false;
        }
    }
    if (calls.count) qsort(calls.data, calls.count, sizeof(chrome_call), call_compare);
    uint64_t ends[LANES_MAX];
    uint32_t lanes = 0;
    for (size_t i = 0; i < calls.count; i++) {
        const chrome_call *call = (const chrome_call *)calls.data + i;
        if (!i || call->device != call[-1].device) lanes = 0;
        uint32_t lane = 0;
        while (lane < lanes && ends[lane] > call->start_ns)
            lane++;
        if (lane == LANES_MAX) continue; /* more calls at a time than tracks: left out */
        if (lane == lanes) {
            char name[32];
            snprintf(name, sizeof name, lane ? "driver calls %u" : "driver calls", lane + 1);
            put_name(writer, "thread_name", name, chrome_process(call->device),
                     chrome_process(call->device) * 1000 + lane);
            lanes++;
        }
        ends[lane] = call->start_ns + call->duration_ns;
        put_call(writer, call, lane);
    }
    lochi_array_free(&calls);
    return true;
}

/* --- blocks --- */

typedef struct chrome_block {
    uint64_t bytes;
    uint32_t block;
} chrome_block;

static int block_compare(const void *a, const void *b)
{
    const chrome_block *one = a, *other = b;
    if (one->bytes != other->bytes) return one->bytes > other->bytes ? -1 : 1;
    return (one->block > other->block) - (one->block < other->block);
}

static void put_block_side(chrome_writer *writer, char phase, uint32_t index, uint32_t event_index, const char *name)
{
    const loch_recording_event *event = (const loch_recording_event *)writer->recording->events.data + event_index;
    const loch_recording_block *block = (const loch_recording_block *)writer->recording->blocks.data + index;
    const uint32_t process = chrome_process(lochi_insight_recording_get_device(writer->recording, block->allocator));
    event_begin(writer, phase, name, event->time_ns, process);
    put_member(writer, "tid", process * 1000);
    fprintf(writer->file, ",\"cat\":\"block\",\"id\":\"%u\"", index);
    if (phase == 'b') {
        fprintf(writer->file,
                ",\"args\":{\"bytes\":%llu,\"stream\":%u,\"allocator\":", (unsigned long long)block->bytes,
                block->stream);
        lochi_text_put_json(writer->file,
                            loch_recording_get_name(writer->recording, LOCH_RECORDING_ALLOCATOR, block->allocator));
        if (block->address) fprintf(writer->file, ",\"address\":\"0x%llx\"", (unsigned long long)block->address);
        fputs("}", writer->file);
    }
    event_end(writer);
}

/* Writes the largest blocks as slices. A block that is live at the end has no end. Returns false if there is no
 * memory. */
static bool writer_put_blocks(chrome_writer *writer)
{
    const loch_recording *recording = writer->recording;
    const loch_recording_block *blocks = recording->blocks.data;
    const loch_recording_event *events = recording->events.data;
    lochi_array largest = {.data = NULL};
    if (!lochi_array_reserve(&largest, recording->blocks.count + 1, sizeof(chrome_block))) return false;
    chrome_block *all = largest.data;
    for (uint32_t i = 0; i < recording->blocks.count; i++)
        all[i] = (chrome_block){blocks[i].bytes, i};
    qsort(all, recording->blocks.count, sizeof *all, block_compare);
    for (size_t i = 0; i < recording->blocks.count && i < BLOCKS_MAX; i++) {
        const loch_recording_block *block = &blocks[all[i].block];
        size_t count;
        const char *const *frames = loch_recording_get_stack(recording, events[block->alloc_event].stack, &count);
        const char *name = loch_recording_get_name(recording, LOCH_RECORDING_TAG, block->tag);
        if (!*name && count) name = frames[0];
        if (!*name) name = loch_recording_get_name(recording, LOCH_RECORDING_ALLOCATOR, block->allocator);
        put_block_side(writer, 'b', all[i].block, block->alloc_event, name);
        if (block->free_event != LOCH_RECORDING_NONE)
            put_block_side(writer, 'e', all[i].block, block->free_event, name);
    }
    lochi_array_free(&largest);
    return true;
}

/* --- the trace --- */

static void put_instant(chrome_writer *writer, const loch_recording_event *event)
{
    static const char *const names[] = {
        [LOCH_RECORDED_SLEEP] = "sleep", [LOCH_RECORDED_WAKE] = "wake", [LOCH_RECORDED_FAIL] = "allocation failed"};
    event_begin(writer, 'i', names[event->kind], event->time_ns, PROGRAM);
    put_member(writer, "tid", PROGRAM * 1000 + event->thread);
    fprintf(writer->file,
            ",\"s\":\"%c\",\"args\":{\"bytes\":%llu,\"allocator\":", event->kind == LOCH_RECORDED_FAIL ? 'g' : 't',
            (unsigned long long)event->value);
    lochi_text_put_json(writer->file,
                        loch_recording_get_name(writer->recording, LOCH_RECORDING_ALLOCATOR, event->subject));
    fputs("}", writer->file);
    event_end(writer);
}

static void put_event(chrome_writer *writer, const loch_recording_event *event)
{
    switch (event->kind) {
    case LOCH_RECORDED_ALLOC:
    case LOCH_RECORDED_RESIZE: device_change(writer, event, event->value); break;
    case LOCH_RECORDED_FREE: device_change(writer, event, 0); break;
    case LOCH_RECORDED_TAKE:
    case LOCH_RECORDED_GIVE:
        if (event->stream >= writer->devices.count) break;
        chrome_device *device = (chrome_device *)writer->devices.data + event->stream;
        device->reserved += event->kind == LOCH_RECORDED_TAKE ? event->value : 0 - event->value;
        put_counter(writer, "reserved", event->stream, event->time_ns, device->reserved);
        break;
    case LOCH_RECORDED_SLEEP:
    case LOCH_RECORDED_WAKE:
    case LOCH_RECORDED_FAIL: put_instant(writer, event); break;
    default: break;
    }
}

static void put_names(chrome_writer *writer)
{
    const loch_recording *recording = writer->recording;
    const char *program = recording->info.program && *recording->info.program ? recording->info.program : "program";
    put_name(writer, "process_name", program, PROGRAM, PROGRAM * 1000);
    for (uint32_t i = 0; i < recording->info.threads; i++)
        put_name(writer, "thread_name", loch_recording_get_name(recording, LOCH_RECORDING_THREAD, i), PROGRAM,
                 PROGRAM * 1000 + i);
    for (uint32_t i = 0; i < recording->info.devices; i++)
        put_name(writer, "process_name", loch_recording_get_name(recording, LOCH_RECORDING_DEVICE, i),
                 chrome_process(i), chrome_process(i) * 1000);
}

loch_status lochi_insight_write_chrome(const loch_recording *recording, const loch_recording_options *options,
                                       insight_sink *sink)
{
    chrome_writer writer = {.recording = recording, .file = sink->file};
    const size_t devices = recording->info.devices, count = recording->events.count;
    loch_status status = LOCH_OK;
    bool is_good = lochi_array_reserve(&writer.devices, devices, sizeof(chrome_device)) &&
                   lochi_array_reserve(&writer.places, recording->info.tags, sizeof(uint32_t)) &&
                   lochi_array_reserve(&writer.sizes, recording->blocks.count, sizeof(uint64_t)) &&
                   writer_choose_tags(&writer);
    if (is_good) {
        writer.devices.count = devices;
        fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", sink->file);
        put_names(&writer);
        for (size_t i = 0; status == LOCH_OK && i < count; i++) {
            put_event(&writer, (const loch_recording_event *)recording->events.data + i);
            if (i % 65536 == 0) status = lochi_insight_progress(options, i, count);
        }
        for (uint32_t i = 0; i < devices; i++)
            device_flush(&writer, i);
        is_good = writer_put_calls(&writer) && writer_put_blocks(&writer);
        fputs("\n]}\n", sink->file);
    }
    lochi_array_free(&writer.devices);
    lochi_array_free(&writer.places);
    lochi_array_free(&writer.sizes);
    return is_good ? status : lochi_insight_no_memory(sink->path);
}
