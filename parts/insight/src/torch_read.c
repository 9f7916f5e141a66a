/* SPDX-License-Identifier: MIT */
/* Memory snapshots of PyTorch: torch.cuda.memory._snapshot() as _dump_snapshot writes it.
 *
 * A snapshot has the state at its end (segments with their blocks) and, for each device, the last events before it.
 * Events reach back as far as PyTorch kept them. So the first pass over them looks for what was there before: blocks
 * and segments that are freed, or there at the end, without an allocation. They are present at the start of the
 * recording. The second pass adds the events of all devices in order of time.
 *
 * PyTorch frees in two steps: free_requested is the free of the program, free_completed says that other streams have
 * ended with the block. The first one counts. Sizes of blocks are those that the program asked for. */
#include "torch_pickle.h"
#include "kit/fail.h"
#include <stdlib.h>
#include <string.h>

#define DEVICES_MAX 1024u
#define BYTES_MAX ((uint64_t)1 << 60)
#define PROGRESS_ENTRIES 65536u
#define STATE_LIVE 0u  /* in the first pass, in place of the index of a block */
#define STATE_FREED 1u /* an address whose block was freed */

/* A stretch of addresses that was taken from the driver. */
typedef struct torch_interval {
    uint64_t start, end;
    uint32_t range; /* LOCH_RECORDING_NONE in the first pass */
} torch_interval;

/* A block that was there before the first event. */
typedef struct torch_present {
    uint64_t address, bytes, stream;
    uint32_t frames, tag, pool;
    uint32_t device; /* place in `devices` */
} torch_present;

typedef struct torch_device {
    uint32_t number;       /* number in PyTorch */
    uint32_t index;        /* index in the recording */
    uint32_t entries;      /* object: the list of events; LOCH_RECORDING_NONE for none */
    bool has_requests;     /* frees have the step free_requested */
    torch_cursor cursor;   /* second pass: behind `next` */
    torch_record *next;    /* second pass: the next event */
    lochi_table blocks;    /* address -> state in the first pass, index of the block in the second */
    lochi_array intervals; /* of torch_interval, by address */
    lochi_array missing;   /* of torch_interval: was there before the first event */
} torch_device;

typedef struct torch_reader {
    const insight_source *source;
    const loch_recording_options *options;
    loch_recording *recording;
    torch_pickle pickle;
    lochi_array devices; /* of torch_device */
    lochi_array present; /* of torch_present */
    lochi_table streams; /* PyTorch's stream -> number */
    lochi_table pools;   /* device and name of the pool -> allocator */
    uint32_t stream_count;
    uint64_t base_us; /* time of the first event */
    uint64_t now_ns;  /* time of the last event that was added */
    size_t done, all; /* entries */
    bool has_times, has_base;
    bool is_good; /* false: there is no memory */
} torch_reader;

static loch_status torch_fail(const torch_reader *reader, const char *what)
{
    return LOCH_FAIL(INVALID, "%s: %s", reader->source->path, what);
}

static torch_device *torch_devices(const torch_reader *reader)
{
    return reader->devices.data;
}

/* --- names --- */

/* Returns the small number of a stream, which is a pointer in PyTorch. */
static uint16_t torch_stream(torch_reader *reader, uint64_t stream)
{
    if (!stream) return 0;
    uint32_t number = lochi_table_find(&reader->streams, stream);
    if (number != UINT32_MAX) return (uint16_t)number;
    number = reader->stream_count < UINT16_MAX - 1 ? ++reader->stream_count : UINT16_MAX - 1; /* the last is shared */
    if (!lochi_table_set(&reader->streams, stream, number)) reader->is_good = false;
    return (uint16_t)number;
}

/* Returns the index of a tag that is a text of the recording. */
static uint32_t torch_tag(torch_reader *reader, uint32_t text)
{
    if (!text) return 0;
    const char *name = (const char *)reader->recording->text.data + text;
    const uint32_t tag = lochi_insight_recording_add_name(reader->recording, LOCH_RECORDING_TAG, name, strlen(name));
    if (tag == LOCH_RECORDING_NONE) reader->is_good = false;
    return tag;
}

/* Returns the index of the allocator of a device's pool: "cuda:0", or "cuda:0 pool 0:1" for a private pool. */
static uint16_t torch_allocator(torch_reader *reader, const torch_device *device, uint32_t pool)
{
    const uint64_t key = (uint64_t)device->index << 32 | pool;
    uint32_t allocator = lochi_table_find(&reader->pools, key);
    if (allocator != UINT32_MAX) return (uint16_t)allocator;
    char name[128];
    const int length = snprintf(name, sizeof name, "%s%s%s",
                                loch_recording_get_name(reader->recording, LOCH_RECORDING_DEVICE, device->index),
                                pool ? " " : "", (const char *)reader->recording->text.data + pool);
    allocator = lochi_insight_recording_add_name(reader->recording, LOCH_RECORDING_ALLOCATOR, name, (size_t)length);
    if (allocator >= UINT16_MAX) allocator = 0; /* too many pools share the first one */
    if (!lochi_table_set(&reader->pools, key, allocator) ||
        !lochi_insight_recording_set_device(reader->recording, allocator, device->index))
        reader->is_good = false;
    return (uint16_t)allocator;
}

static uint32_t torch_stack(torch_reader *reader, uint32_t frames)
{
    return lochi_insight_torch_pickle_get_stack(&reader->pickle, reader->recording, frames, &reader->is_good);
}

/* --- ranges --- */

/* Returns the place of the first interval that ends behind `address`. */
static size_t intervals_find(const lochi_array *intervals, uint64_t address)
{
    const torch_interval *all = intervals->data;
    size_t low = 0, high = intervals->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (all[middle].end > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Notes the parts of an interval that are not in `intervals`: they were there before the first event. */
static void intervals_note_missing(torch_reader *reader, torch_device *device, uint64_t start, uint64_t end)
{
    const torch_interval *all = device->intervals.data;
    for (size_t i = intervals_find(&device->intervals, start); start < end; i++) {
        const bool is_last = i >= device->intervals.count || all[i].start >= end;
        const torch_interval gap = {start, is_last ? end : all[i].start, LOCH_RECORDING_NONE};
        if (gap.start < gap.end && !lochi_array_append(&device->missing, &gap, 1, sizeof gap)) reader->is_good = false;
        if (is_last) return;
        if (all[i].end > start) start = all[i].end;
    }
}

/* Adds a range and the event that took it. `event` is NULL in the first pass. Returns the range. */
static uint32_t torch_add_take(torch_reader *reader, const torch_device *device, uint64_t start, uint64_t end,
                               const loch_recording_event *event)
{
    if (!event) return LOCH_RECORDING_NONE;
    const loch_recording_range range = {.address = start,
                                        .bytes = end - start,
                                        .take_event = (uint32_t)reader->recording->events.count,
                                        .give_event = LOCH_RECORDING_NONE,
                                        .device = (uint16_t)device->index,
                                        .kind = LOCH_MEMORY_DEVICE};
    loch_recording_event take = *event;
    take.kind = LOCH_RECORDED_TAKE;
    take.value = end - start;
    take.stream = (uint16_t)device->index;
    take.subject = lochi_insight_recording_add_range(reader->recording, &range);
    if (take.subject == LOCH_RECORDING_NONE ||
        lochi_insight_recording_add_event(reader->recording, &take) == LOCH_RECORDING_NONE)
        reader->is_good = false;
    return take.subject;
}

static void torch_add_give(torch_reader *reader, const torch_device *device, uint32_t range,
                           const loch_recording_event *event)
{
    if (!event || range == LOCH_RECORDING_NONE) return;
    loch_recording_range *given = (loch_recording_range *)reader->recording->ranges.data + range;
    loch_recording_event give = *event;
    give.kind = LOCH_RECORDED_GIVE;
    give.subject = range;
    give.value = given->bytes;
    give.stream = (uint16_t)device->index;
    given->give_event = lochi_insight_recording_add_event(reader->recording, &give);
    if (given->give_event == LOCH_RECORDING_NONE) reader->is_good = false;
}

/* Makes room for one interval at place `at`. */
static bool intervals_insert(lochi_array *intervals, size_t at, torch_interval interval)
{
    if (!lochi_array_reserve(intervals, intervals->count + 1, sizeof interval)) return false;
    torch_interval *all = intervals->data;
    memmove(all + at + 1, all + at, (intervals->count - at) * sizeof *all);
    all[at] = interval;
    intervals->count++;
    return true;
}

/* Takes addresses out of the intervals. A range of which a part stays is given back, and the part is taken again. */
static void intervals_cut(torch_reader *reader, torch_device *device, uint64_t start, uint64_t end,
                          const loch_recording_event *event)
{
    lochi_array *intervals = &device->intervals;
    const size_t first = intervals_find(intervals, start);
    size_t last = first;
    while (last < intervals->count && ((torch_interval *)intervals->data)[last].start < end)
        torch_add_give(reader, device, ((torch_interval *)intervals->data)[last++].range, event);
    if (last == first) return;
    torch_interval *all = intervals->data;
    torch_interval left = {all[first].start, start, LOCH_RECORDING_NONE};
    torch_interval right = {end, all[last - 1].end, LOCH_RECORDING_NONE};
    memmove(all + first, all + last, (intervals->count - last) * sizeof *all);
    intervals->count -= last - first;
    if (right.start < right.end) {
        right.range = torch_add_take(reader, device, right.start, right.end, event);
        reader->is_good = reader->is_good && intervals_insert(intervals, first, right);
    }
    if (left.start < left.end) {
        left.range = torch_add_take(reader, device, left.start, left.end, event);
        reader->is_good = reader->is_good && intervals_insert(intervals, first, left);
    }
}

static void torch_take(torch_reader *reader, torch_device *device, uint64_t start, uint64_t end,
                       const loch_recording_event *event)
{
    if (start >= end) return;
    intervals_cut(reader, device, start, end, event);
    const torch_interval taken = {start, end, torch_add_take(reader, device, start, end, event)};
    const size_t at = intervals_find(&device->intervals, start);
    reader->is_good = reader->is_good && intervals_insert(&device->intervals, at, taken);
}

/* --- the first pass: what was there before --- */

static void torch_note_present(torch_reader *reader, torch_present present)
{
    if (!lochi_array_append(&reader->present, &present, 1, sizeof present)) reader->is_good = false;
}

/* Says whether an entry is the free of a block, which has `state` in the map of blocks. */
static bool torch_is_free(const torch_device *device, const torch_record *entry, bool is_live)
{
    return entry->word == TORCH_FREE_REQUESTED ||
           (entry->word == TORCH_FREE_COMPLETED && (is_live || !device->has_requests));
}

static void torch_look_at_entry(torch_reader *reader, uint32_t place, const torch_record *entry)
{
    torch_device *device = torch_devices(reader) + place;
    const uint64_t start = entry->address, end = start + entry->size;
    const uint32_t state = lochi_table_find(&device->blocks, start);
    switch (entry->word) {
    case TORCH_ALLOC:
        if (!lochi_table_set(&device->blocks, start, STATE_LIVE)) reader->is_good = false;
        break;
    case TORCH_FREE_REQUESTED:
    case TORCH_FREE_COMPLETED:
        if (!torch_is_free(device, entry, state == STATE_LIVE)) break;
        if (state == UINT32_MAX)
            torch_note_present(reader, (torch_present){.address = start,
                                                       .bytes = entry->size,
                                                       .stream = entry->stream,
                                                       .frames = LOCH_RECORDING_NONE,
                                                       .tag = entry->tag,
                                                       .pool = entry->other,
                                                       .device = place});
        if (!lochi_table_set(&device->blocks, start, STATE_FREED)) reader->is_good = false;
        break;
    case TORCH_SEGMENT_ALLOC:
    case TORCH_SEGMENT_MAP: torch_take(reader, device, start, end, NULL); break;
    case TORCH_SEGMENT_FREE:
    case TORCH_SEGMENT_UNMAP:
        intervals_note_missing(reader, device, start, end);
        intervals_cut(reader, device, start, end, NULL);
        break;
    default: break;
    }
}

/* Looks at a segment as it is at the end. */
static loch_status torch_look_at_segment(torch_reader *reader, uint32_t place, const torch_record *segment)
{
    torch_device *device = torch_devices(reader) + place;
    if (segment->size > BYTES_MAX || segment->address > UINT64_MAX - segment->size)
        return torch_fail(reader, "a segment has more bytes than there are addresses");
    if (segment->has & TORCH_HAS_ADDRESS)
        intervals_note_missing(reader, device, segment->address, segment->address + segment->size);
    torch_cursor cursor = torch_list_start(lochi_insight_torch_pickle_get_list(&reader->pickle, segment->items));
    uint64_t address = segment->address;
    for (uint32_t object; (object = lochi_insight_torch_list_next(&reader->pickle, &cursor)) != LOCH_RECORDING_NONE;) {
        const torch_record *block = lochi_insight_torch_pickle_get_record(&reader->pickle, object);
        if (!block || !(block->has & TORCH_HAS_SIZE)) return torch_fail(reader, "a block of a segment has no size");
        if (block->has & TORCH_HAS_ADDRESS) address = block->address; /* of old snapshots: in order, without gaps */
        const uint64_t bytes = block->has & TORCH_HAS_TIME ? block->time : block->size;
        if (bytes > BYTES_MAX || block->size > BYTES_MAX)
            return torch_fail(reader, "a block of a segment has more bytes than there are addresses");
        if (block->word == TORCH_ACTIVE && lochi_table_find(&device->blocks, address) == UINT32_MAX) {
            torch_note_present(reader, (torch_present){.address = address,
                                                       .bytes = bytes,
                                                       .stream = segment->stream,
                                                       .frames = block->frames,
                                                       .tag = block->tag,
                                                       .pool = segment->other,
                                                       .device = place});
            if (!lochi_table_set(&device->blocks, address, STATE_LIVE)) reader->is_good = false;
        }
        address += block->size;
    }
    return LOCH_OK;
}

/* --- devices --- */

/* Returns the place of a device, and adds it if it is new. UINT32_MAX if there are too many, or no memory. */
static uint32_t torch_find_device(torch_reader *reader, uint32_t number)
{
    for (uint32_t i = 0; i < reader->devices.count; i++)
        if (torch_devices(reader)[i].number == number) return i;
    const torch_device device = {.number = number, .entries = LOCH_RECORDING_NONE};
    if (reader->devices.count >= DEVICES_MAX || !lochi_array_append(&reader->devices, &device, 1, sizeof device))
        return UINT32_MAX;
    return (uint32_t)reader->devices.count - 1;
}

/* Checks an event and learns the time of the first one. */
static loch_status torch_check_entry(torch_reader *reader, torch_device *device, const torch_record *entry, size_t at)
{
    const char *what = NULL;
    if (!entry)
        what = "is no dictionary with an action";
    else if (entry->word >= TORCH_ALLOC && entry->word <= TORCH_SEGMENT_UNMAP && !(entry->has & TORCH_HAS_ADDRESS))
        what = "has no address";
    else if (entry->word >= TORCH_ALLOC && entry->word <= TORCH_OOM && !(entry->has & TORCH_HAS_SIZE) &&
             entry->word != TORCH_SNAPSHOT)
        what = "has no size";
    else if (entry->size > BYTES_MAX ||
             (entry->word <= TORCH_SEGMENT_UNMAP && entry->address > UINT64_MAX - entry->size))
        what = "has more bytes than there are addresses";
    if (what)
        return LOCH_FAIL(INVALID, "%s: event %zu of device %u %s", reader->source->path, at, device->number, what);
    if (entry->word == TORCH_FREE_REQUESTED) device->has_requests = true;
    if (entry->has & TORCH_HAS_TIME) {
        /* The second step of a free, and what is no event of the recording, do not start the time. */
        const bool counts =
            entry->word >= TORCH_ALLOC && entry->word != TORCH_FREE_COMPLETED && entry->word != TORCH_SNAPSHOT;
        if (counts && (!reader->has_base || entry->time < reader->base_us)) reader->base_us = entry->time;
        reader->has_base = reader->has_base || counts;
        reader->has_times = true;
    }
    reader->all++;
    return LOCH_OK;
}

static loch_status torch_find_devices(torch_reader *reader, uint32_t segments, uint32_t traces)
{
    torch_pickle *pickle = &reader->pickle;
    torch_cursor cursor = torch_list_start(lochi_insight_torch_pickle_get_list(pickle, traces));
    uint32_t number = 0;
    for (uint32_t object; (object = lochi_insight_torch_list_next(pickle, &cursor)) != LOCH_RECORDING_NONE; number++) {
        const torch_list *list = lochi_insight_torch_pickle_get_list(pickle, object);
        if (!list) return torch_fail(reader, "device_traces has something that is no list of events");
        if (!list->count) continue;
        const uint32_t place = torch_find_device(reader, number);
        if (place == UINT32_MAX) return torch_fail(reader, "device_traces has more than 1024 devices");
        torch_device *device = torch_devices(reader) + place;
        device->entries = object;
        torch_cursor entries = torch_list_start(list);
        for (size_t at = 0; (object = lochi_insight_torch_list_next(pickle, &entries)) != LOCH_RECORDING_NONE; at++) {
            const loch_status status =
                torch_check_entry(reader, device, lochi_insight_torch_pickle_get_record(pickle, object), at);
            if (status != LOCH_OK) return status;
        }
    }
    cursor = torch_list_start(lochi_insight_torch_pickle_get_list(pickle, segments));
    for (uint32_t object; (object = lochi_insight_torch_list_next(pickle, &cursor)) != LOCH_RECORDING_NONE;) {
        const torch_record *segment = lochi_insight_torch_pickle_get_record(pickle, object);
        if (!segment) return torch_fail(reader, "segments has something that is no segment");
        if (torch_find_device(reader, segment->device) == UINT32_MAX)
            return torch_fail(reader, "segments has more than 1024 devices");
    }
    return LOCH_OK;
}

/* Names the devices in order of their numbers. A profile without times may be that of a CPU. */
static void torch_name_devices(torch_reader *reader)
{
    char name[32];
    for (uint32_t last = 0, i = 0; i < reader->devices.count; i++) {
        torch_device *next = NULL; /* the device with the smallest number that has no name yet */
        for (uint32_t j = 0; j < reader->devices.count; j++) {
            torch_device *device = torch_devices(reader) + j;
            if ((!i || device->number > last) && (!next || device->number < next->number)) next = device;
        }
        if (!next) return;
        last = next->number;
        const int length =
            snprintf(name, sizeof name, "%s:%u", reader->all && !reader->has_times ? "device" : "cuda", next->number);
        next->index = lochi_insight_recording_add_name(reader->recording, LOCH_RECORDING_DEVICE, name, (size_t)length);
        if (next->index == LOCH_RECORDING_NONE) {
            reader->is_good = false;
            next->index = 0;
        }
        (void)torch_allocator(reader, next, 0);
    }
}

static loch_status torch_look(torch_reader *reader, uint32_t segments)
{
    torch_pickle *pickle = &reader->pickle;
    for (uint32_t i = 0; i < reader->devices.count; i++) {
        torch_cursor cursor =
            torch_list_start(lochi_insight_torch_pickle_get_list(pickle, torch_devices(reader)[i].entries));
        for (uint32_t object; (object = lochi_insight_torch_list_next(pickle, &cursor)) != LOCH_RECORDING_NONE;)
            torch_look_at_entry(reader, i, lochi_insight_torch_pickle_get_record(pickle, object));
    }
    torch_cursor cursor = torch_list_start(lochi_insight_torch_pickle_get_list(pickle, segments));
    for (uint32_t object; (object = lochi_insight_torch_list_next(pickle, &cursor)) != LOCH_RECORDING_NONE;) {
        const torch_record *segment = lochi_insight_torch_pickle_get_record(pickle, object);
        const loch_status status = torch_look_at_segment(reader, torch_find_device(reader, segment->device), segment);
        if (status != LOCH_OK) return status;
    }
    for (uint32_t i = 0; i < reader->devices.count; i++) {
        lochi_table_free(&torch_devices(reader)[i].blocks);
        torch_devices(reader)[i].intervals.count = 0;
    }
    return LOCH_OK;
}

/* --- the second pass --- */

static void torch_add_alloc(torch_reader *reader, torch_device *device, const loch_recording_block *block,
                            const loch_recording_event *event)
{
    loch_recording_block added = *block;
    added.id = reader->recording->blocks.count;
    const uint32_t index = lochi_insight_recording_add_alloc(reader->recording, &added, event);
    if (index == LOCH_RECORDING_NONE || !lochi_table_set(&device->blocks, block->address, index))
        reader->is_good = false;
}

static void torch_add_present(torch_reader *reader)
{
    const loch_recording_event start = {.stack = LOCH_RECORDING_NONE};
    for (uint32_t i = 0; i < reader->devices.count; i++) {
        torch_device *device = torch_devices(reader) + i;
        for (size_t j = 0; j < device->missing.count; j++) {
            const torch_interval *missing = (const torch_interval *)device->missing.data + j;
            torch_take(reader, device, missing->start, missing->end, &start);
        }
    }
    for (size_t i = 0; reader->is_good && i < reader->present.count; i++) {
        const torch_present *present = (const torch_present *)reader->present.data + i;
        torch_device *device = torch_devices(reader) + present->device;
        const loch_recording_block block = {.bytes = present->bytes,
                                            .address = present->address,
                                            .tag = torch_tag(reader, present->tag),
                                            .allocator = torch_allocator(reader, device, present->pool),
                                            .stream = torch_stream(reader, present->stream),
                                            .is_present = 1};
        const loch_recording_event event = {.stack = torch_stack(reader, present->frames), .stream = block.stream};
        torch_add_alloc(reader, device, &block, &event);
    }
}

/* Frees the block at an address, if one is live there. */
static void torch_add_free(torch_reader *reader, torch_device *device, uint64_t address,
                           const loch_recording_event *event)
{
    const uint32_t block = lochi_table_remove(&device->blocks, address);
    if (block == UINT32_MAX) return;
    if (lochi_insight_recording_add_free(reader->recording, block, event) == LOCH_RECORDING_NONE)
        reader->is_good = false;
}

static void torch_add_entry(torch_reader *reader, torch_device *device, const torch_record *entry)
{
    const uint64_t start = entry->address, end = start + entry->size;
    loch_recording_event event = {.time_ns = reader->now_ns, .stack = torch_stack(reader, entry->frames)};
    if (entry->word <= TORCH_FREE_COMPLETED) event.stream = torch_stream(reader, entry->stream);
    switch (entry->word) {
    case TORCH_ALLOC: {
        const loch_recording_block block = {.bytes = entry->size,
                                            .address = start,
                                            .tag = torch_tag(reader, entry->tag),
                                            .allocator = torch_allocator(reader, device, entry->other),
                                            .stream = event.stream};
        torch_add_free(reader, device, start, &event); /* its own free is not in the trace */
        torch_add_alloc(reader, device, &block, &event);
        break;
    }
    case TORCH_FREE_REQUESTED:
    case TORCH_FREE_COMPLETED:
        if (!torch_is_free(device, entry, true)) break;
        torch_add_free(reader, device, start, &event);
        break;
    case TORCH_SEGMENT_ALLOC:
    case TORCH_SEGMENT_MAP: torch_take(reader, device, start, end, &event); break;
    case TORCH_SEGMENT_FREE:
    case TORCH_SEGMENT_UNMAP: intervals_cut(reader, device, start, end, &event); break;
    case TORCH_OOM:
        event.kind = LOCH_RECORDED_FAIL;
        event.subject = torch_allocator(reader, device, entry->other);
        event.value = entry->size;
        event.stream = LOCH_E_DEVICE_MEMORY;
        if (lochi_insight_recording_add_event(reader->recording, &event) == LOCH_RECORDING_NONE)
            reader->is_good = false;
        break;
    default: break;
    }
}

static void torch_step(torch_reader *reader, torch_device *device)
{
    const uint32_t object = lochi_insight_torch_list_next(&reader->pickle, &device->cursor);
    device->next =
        object == LOCH_RECORDING_NONE ? NULL : lochi_insight_torch_pickle_get_record(&reader->pickle, object);
}

/* Adds the events of all devices in order of time. Events without a time are a microsecond apart. */
static loch_status torch_add_entries(torch_reader *reader)
{
    for (uint32_t i = 0; i < reader->devices.count; i++) {
        torch_device *device = torch_devices(reader) + i;
        device->cursor = torch_list_start(lochi_insight_torch_pickle_get_list(&reader->pickle, device->entries));
        torch_step(reader, device);
    }
    while (reader->is_good) {
        torch_device *first = NULL;
        for (uint32_t i = 0; i < reader->devices.count; i++) {
            torch_device *device = torch_devices(reader) + i;
            if (device->next && (!first || device->next->time < first->next->time)) first = device;
        }
        if (!first) break;
        const uint64_t passed_us = reader->has_times ? first->next->time - reader->base_us : reader->done;
        const uint64_t time_ns = passed_us < INT64_MAX / 1000 ? passed_us * 1000 : INT64_MAX;
        if (first->next->time >= reader->base_us && time_ns > reader->now_ns) reader->now_ns = time_ns;
        torch_add_entry(reader, first, first->next);
        torch_step(reader, first);
        if (++reader->done % PROGRESS_ENTRIES) continue;
        const loch_status status = lochi_insight_progress(reader->options, reader->all + reader->done, 2 * reader->all);
        if (status != LOCH_OK) return status;
    }
    return LOCH_OK;
}

static loch_status torch_convert(torch_reader *reader)
{
    const torch_record *root = lochi_insight_torch_pickle_get_record(&reader->pickle, reader->pickle.root);
    uint32_t segments = LOCH_RECORDING_NONE, traces = LOCH_RECORDING_NONE;
    if (root) {
        segments = root->items;
        traces = root->frames;
    } else if (lochi_insight_torch_pickle_get_list(&reader->pickle, reader->pickle.root)) {
        segments = reader->pickle.root; /* torch.cuda.memory_snapshot(): segments alone */
    }
    if (!lochi_insight_torch_pickle_get_list(&reader->pickle, segments))
        return torch_fail(reader, "this pickle is no memory snapshot of PyTorch: it has no list of segments");
    loch_status status = torch_find_devices(reader, segments, traces);
    if (status != LOCH_OK) return status;
    torch_name_devices(reader);
    status = torch_look(reader, segments);
    if (status != LOCH_OK) return status;
    if (reader->is_good) torch_add_present(reader);
    status = torch_add_entries(reader);
    if (status != LOCH_OK) return status;
    if (!reader->is_good) return lochi_insight_no_memory(reader->source->path);
    if (reader->base_us < INT64_MAX / 1000) reader->recording->info.started_ns = reader->base_us * 1000;
    reader->recording->info.has_addresses = 1;
    return LOCH_OK;
}

loch_status lochi_insight_read_torch(const insight_source *source, const loch_recording_options *options,
                                     loch_recording *recording)
{
    torch_reader reader = {.source = source, .options = options, .recording = recording, .is_good = true};
    loch_status status = lochi_insight_torch_pickle_read(source, options, recording, &reader.pickle);
    if (status == LOCH_OK) status = torch_convert(&reader);
    for (uint32_t i = 0; i < reader.devices.count; i++) {
        torch_device *device = torch_devices(&reader) + i;
        lochi_table_free(&device->blocks);
        lochi_array_free(&device->intervals);
        lochi_array_free(&device->missing);
    }
    lochi_array_free(&reader.devices);
    lochi_array_free(&reader.present);
    lochi_table_free(&reader.streams);
    lochi_table_free(&reader.pools);
    lochi_insight_torch_pickle_free(&reader.pickle);
    return status;
}
