/* SPDX-License-Identifier: MIT */
/* Writes a recording as a memory snapshot of PyTorch, for torch.cuda._memory_viz and the viewer of memory_viz.
 *
 * The pickle has protocol 4 and the few opcodes that the viewer's own reader knows. Keys, tags, frames and call stacks
 * are written once and then named by their number in the memo. Lists get their items a thousand at a time, as Python
 * writes them: the viewer cannot take much larger portions. */
#include "format.h"
#include "torch_layout.h"
#include "kit/utf8.h"
#include <stdlib.h>
#include <string.h>

#define BATCH 1000u
#define SMALL_SEGMENT ((uint64_t)2 << 20)
#define DEVICES_MAX 1024u
#define PROGRESS_EVENTS 65536u

/* Texts that are written again and again. */
#define WORDS(X)                                                                                                       \
    X(action)                                                                                                          \
    X(addr)                                                                                                            \
    X(size)                                                                                                            \
    X(stream)                                                                                                          \
    X(time_us)                                                                                                         \
    X(frames)                                                                                                          \
    X(user_metadata)                                                                                                   \
    X(name)                                                                                                            \
    X(filename)                                                                                                        \
    X(line)                                                                                                            \
    X(alloc)                                                                                                           \
    X(free_requested)                                                                                                  \
    X(free_completed)                                                                                                  \
    X(segment_alloc)                                                                                                   \
    X(segment_free)                                                                                                    \
    X(segment_map)                                                                                                     \
    X(segment_unmap)                                                                                                   \
    X(oom)                                                                                                             \
    X(device_free)                                                                                                     \
    X(device)                                                                                                          \
    X(address)                                                                                                         \
    X(total_size)                                                                                                      \
    X(allocated_size)                                                                                                  \
    X(active_size)                                                                                                     \
    X(requested_size)                                                                                                  \
    X(segment_type)                                                                                                    \
    X(segment_pool_id)                                                                                                 \
    X(is_expandable)                                                                                                   \
    X(blocks)                                                                                                          \
    X(state)                                                                                                           \
    X(active_allocated)                                                                                                \
    X(inactive)                                                                                                        \
    X(large)                                                                                                           \
    X(small)                                                                                                           \
    X(segments)                                                                                                        \
    X(device_traces)                                                                                                   \
    X(allocator_settings)                                                                                              \
    X(external_annotations)                                                                                            \
    X(PYTORCH_CUDA_ALLOC_CONF)                                                                                         \
    X(max_split_size)                                                                                                  \
    X(garbage_collection_threshold)                                                                                    \
    X(expandable_segments)                                                                                             \
    X(roundup_power2_divisions)

enum word {
#define WORD_ENUM(text) WORD_##text,
    WORDS(WORD_ENUM)
#undef WORD_ENUM
        WORD_COUNT
};

static const char *const word_texts[] = {
#define WORD_TEXT(text) #text,
    WORDS(WORD_TEXT)
#undef WORD_TEXT
};

typedef struct torch_writer {
    const loch_recording *recording;
    const loch_recording_options *options;
    FILE *file;
    torch_layout layout;
    uint32_t memo;              /* numbers that were given */
    uint32_t words[WORD_COUNT]; /* number in the memo plus 1; 0: not written yet */
    lochi_array tags;           /* of uint32_t: number of each tag in the memo plus 1 */
    lochi_array stacks;         /* of uint32_t: number of each call stack in the memo plus 1 */
    lochi_table frames;         /* offset of a frame in `text` -> number in the memo */
    lochi_table live;           /* address -> block, of the device that is being written */
    lochi_array bytes;          /* of uint64_t: present bytes of each block */
    lochi_array moved;          /* of uint64_t: present address of each block */
    size_t list_count;          /* items of the present list */
    size_t present;             /* events before this one tell what was there at the start */
    size_t done, all;           /* events */
    bool is_good;               /* false: there is no memory */
} torch_writer;

/* --- opcodes --- */

static void put(torch_writer *writer, int byte)
{
    putc_unlocked(byte, writer->file);
}

static void put_bytes(torch_writer *writer, uint64_t number, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        put(writer, (int)(number >> (8 * i) & 0xff));
}

static void put_number(torch_writer *writer, uint64_t number)
{
    if (number < 256) {
        put(writer, 'K');
        put_bytes(writer, number, 1);
    } else if (number < 65536) {
        put(writer, 'M');
        put_bytes(writer, number, 2);
    } else if (number <= INT32_MAX) {
        put(writer, 'J');
        put_bytes(writer, number, 4);
    } else {
        unsigned count = 5; /* a number with its highest bit set needs a zero behind */
        while (count < 9 && number >> (8 * count - 1))
            count++;
        put(writer, 0x8a); /* LONG1 */
        put(writer, (int)count);
        put_bytes(writer, number, count < 9 ? count : 8);
        if (count == 9) put(writer, 0);
    }
}

/* Writes a text. Python refuses what is not UTF-8, so such bytes become question marks. */
static void put_text(torch_writer *writer, const char *text, size_t length)
{
    if (length < 256) {
        put(writer, 0x8c); /* SHORT_BINUNICODE */
        put_bytes(writer, length, 1);
    } else {
        put(writer, 'X');
        put_bytes(writer, length, 4);
    }
    for (size_t i = 0; i < length;) {
        const size_t count = lochi_utf8_length(text + i, length - i);
        for (size_t j = 0; j < count; j++)
            put(writer, text[i + j]);
        if (!count) put(writer, '?');
        i += count ? count : 1;
    }
}

/* Gives the value that was just written the next number of the memo. Returns the number. */
static uint32_t put_memoize(torch_writer *writer)
{
    put(writer, 0x94);
    return writer->memo++;
}

static void put_get(torch_writer *writer, uint32_t number)
{
    put(writer, number < 256 ? 'h' : 'j');
    put_bytes(writer, number, number < 256 ? 1 : 4);
}

static void put_word(torch_writer *writer, enum word word)
{
    uint32_t *number = &writer->words[word];
    if (*number) {
        put_get(writer, *number - 1);
        return;
    }
    put_text(writer, word_texts[word], strlen(word_texts[word]));
    *number = put_memoize(writer) + 1;
}

static void put_item_number(torch_writer *writer, enum word key, uint64_t number)
{
    put_word(writer, key);
    put_number(writer, number);
}

static void put_item_word(torch_writer *writer, enum word key, enum word word)
{
    put_word(writer, key);
    put_word(writer, word);
}

static void put_item_bool(torch_writer *writer, enum word key, bool is_true)
{
    put_word(writer, key);
    put(writer, is_true ? 0x88 : 0x89);
}

static void dict_begin(torch_writer *writer)
{
    put(writer, '}');
    put(writer, '(');
}

static void dict_end(torch_writer *writer)
{
    put(writer, 'u');
}

/* Lists: begin, then next before each item, then end. Their count is kept by the caller, since lists nest. */
static void list_begin(torch_writer *writer, size_t *count)
{
    put(writer, ']');
    put(writer, '(');
    *count = 0;
}

static void list_next(torch_writer *writer, size_t *count)
{
    if (*count && *count % BATCH == 0) {
        put(writer, 'e');
        put(writer, '(');
    }
    ++*count;
}

static void list_end(torch_writer *writer)
{
    put(writer, 'e');
}

/* --- call stacks --- */

/* Writes a frame. "function at file:line" is taken apart again. */
static void put_frame(torch_writer *writer, uint32_t offset)
{
    const uint32_t number = lochi_table_find(&writer->frames, offset);
    if (number != UINT32_MAX) {
        put_get(writer, number);
        return;
    }
    const char *text = (const char *)writer->recording->text.data + offset, *file = "", *end = NULL;
    const char *colon = strrchr(text, ':');
    size_t length = strlen(text);
    unsigned long line = 0;
    for (const char *at = strstr(text, " at "); at && colon; at = strstr(at + 1, " at ")) {
        if (at + 4 >= colon) break;
        line = strtoul(colon + 1, (char **)&end, 10);
        if (end == colon + 1 || *end || line > INT32_MAX) break;
        length = (size_t)(at - text);
        file = at + 4;
    }
    if (!*file) line = 0;
    put(writer, '}');
    if (!lochi_table_set(&writer->frames, offset, put_memoize(writer))) writer->is_good = false;
    put(writer, '(');
    put_word(writer, WORD_name);
    put_text(writer, text, length);
    put_word(writer, WORD_filename);
    put_text(writer, file, *file ? (size_t)(colon - file) : 0);
    put_item_number(writer, WORD_line, line);
    dict_end(writer);
}

static void put_item_stack(torch_writer *writer, uint32_t stack)
{
    put_word(writer, WORD_frames);
    const insight_stack *found = NULL;
    if (stack < writer->recording->stacks.count) found = (const insight_stack *)writer->recording->stacks.data + stack;
    if (!found || !found->count) {
        put(writer, ']');
        return;
    }
    uint32_t *number = (uint32_t *)writer->stacks.data + stack;
    if (*number) {
        put_get(writer, *number - 1);
        return;
    }
    const uint32_t *frames = (const uint32_t *)writer->recording->frames.data + found->first;
    put(writer, ']');
    *number = put_memoize(writer) + 1;
    put(writer, '(');
    for (size_t i = 0, count = 0; i < found->count; i++) {
        list_next(writer, &count);
        put_frame(writer, frames[i]);
    }
    list_end(writer);
}

static void put_item_tag(torch_writer *writer, uint32_t tag)
{
    put_word(writer, WORD_user_metadata);
    if (tag >= writer->tags.count) tag = 0;
    uint32_t *number = (uint32_t *)writer->tags.data + tag;
    if (*number) {
        put_get(writer, *number - 1);
        return;
    }
    const char *name = loch_recording_get_name(writer->recording, LOCH_RECORDING_TAG, tag);
    put_text(writer, name, strlen(name));
    *number = put_memoize(writer) + 1;
}

/* --- events --- */

typedef struct torch_entry {
    enum word action;
    uint64_t address, bytes;
    uint32_t stream, tag;
} torch_entry;

static void put_entry(torch_writer *writer, const loch_recording_event *event, const torch_entry *entry)
{
    list_next(writer, &writer->list_count);
    dict_begin(writer);
    put_item_word(writer, WORD_action, entry->action);
    put_item_number(writer, entry->action == WORD_oom ? WORD_device_free : WORD_addr, entry->address);
    put_item_number(writer, WORD_size, entry->bytes);
    put_item_number(writer, WORD_stream, entry->stream);
    put_item_number(writer, WORD_time_us, (writer->recording->info.started_ns + event->time_ns) / 1000);
    put_item_tag(writer, entry->tag);
    put_item_stack(writer, event->stack);
    dict_end(writer);
}

static void put_free(torch_writer *writer, const loch_recording_event *event, uint32_t index)
{
    const loch_recording_block *block = (const loch_recording_block *)writer->recording->blocks.data + index;
    torch_entry entry = {.action = WORD_free_requested,
                         .address = ((const uint64_t *)writer->moved.data)[index],
                         .bytes = ((const uint64_t *)writer->bytes.data)[index],
                         .stream = event->kind == LOCH_RECORDED_FREE ? event->stream : block->stream,
                         .tag = block->tag};
    lochi_table_remove(&writer->live, entry.address);
    put_entry(writer, event, &entry);
    entry.action = WORD_free_completed;
    put_entry(writer, event, &entry);
}

static void put_alloc(torch_writer *writer, const loch_recording_event *event, uint32_t index)
{
    const loch_recording_block *block = (const loch_recording_block *)writer->recording->blocks.data + index;
    const torch_entry entry = {.action = WORD_alloc,
                               .address = ((const uint64_t *)writer->moved.data)[index],
                               .bytes = ((const uint64_t *)writer->bytes.data)[index],
                               .stream = block->stream,
                               .tag = block->tag};
    if (!lochi_table_set(&writer->live, entry.address, index)) writer->is_good = false;
    /* A block that was live before the start has no event. The viewer finds it by its free, or among the segments. */
    if (!block->is_present || event->kind != LOCH_RECORDED_ALLOC) put_entry(writer, event, &entry);
}

/* Writes an event of a block. A block at an address where another is live is a part of that one, and is left out. */
static void put_block_event(torch_writer *writer, const loch_recording_event *event)
{
    const uint32_t index = event->subject;
    uint64_t *address = (uint64_t *)writer->moved.data + index, *bytes = (uint64_t *)writer->bytes.data + index;
    if (event->kind == LOCH_RECORDED_ALLOC) {
        *address = ((const uint64_t *)writer->layout.addresses.data)[index];
        *bytes = event->value;
        if (lochi_table_find(&writer->live, *address) == UINT32_MAX) put_alloc(writer, event, index);
        return;
    }
    if (lochi_table_find(&writer->live, *address) != index) return;
    if (event->kind == LOCH_RECORDED_FREE) {
        put_free(writer, event, index);
        return;
    }
    const bool is_move = event->kind == LOCH_RECORDED_MOVE;
    const bool has_address = ((const loch_recording_block *)writer->recording->blocks.data)[index].address != 0;
    if (event->kind == LOCH_RECORDED_USE || (is_move && !has_address)) return;
    put_free(writer, event, index);
    if (is_move)
        *address = event->value;
    else
        *bytes = event->value;
    put_alloc(writer, event, index);
}

static void put_event(torch_writer *writer, uint32_t device, const loch_recording_event *event)
{
    const loch_recording *recording = writer->recording;
    const bool is_expandable = ((const uint8_t *)writer->layout.expandable.data)[device];
    torch_entry entry = {.bytes = event->value};
    switch (event->kind) {
    case LOCH_RECORDED_TAKE:
    case LOCH_RECORDED_GIVE: {
        const loch_recording_range *range = (const loch_recording_range *)recording->ranges.data + event->subject;
        if (range->device != device || !range->address) return;
        if (range->take_event < writer->present && event->kind == LOCH_RECORDED_TAKE) return;
        entry.address = range->address;
        if (event->kind == LOCH_RECORDED_TAKE)
            entry.action = is_expandable ? WORD_segment_map : WORD_segment_alloc;
        else
            entry.action = is_expandable ? WORD_segment_unmap : WORD_segment_free;
        put_entry(writer, event, &entry);
        return;
    }
    case LOCH_RECORDED_FAIL:
        entry.action = WORD_oom;
        if (lochi_insight_recording_get_device(recording, event->subject) == device) put_entry(writer, event, &entry);
        return;
    case LOCH_RECORDED_CALL:
    case LOCH_RECORDED_SLEEP:
    case LOCH_RECORDED_WAKE: return;
    default: break;
    }
    const loch_recording_block *block = (const loch_recording_block *)recording->blocks.data + event->subject;
    if (lochi_insight_recording_get_device(recording, block->allocator) == device) put_block_event(writer, event);
}

static loch_status put_trace(torch_writer *writer, uint32_t device)
{
    lochi_table_free(&writer->live);
    list_begin(writer, &writer->list_count);
    for (size_t i = 0; writer->is_good && i < writer->recording->events.count; i++) {
        put_event(writer, device, (const loch_recording_event *)writer->recording->events.data + i);
        if (++writer->done % PROGRESS_EVENTS) continue;
        const loch_status status = lochi_insight_progress(writer->options, writer->done, writer->all);
        if (status != LOCH_OK) return status;
    }
    list_end(writer);
    return LOCH_OK;
}

/* --- segments --- */

static void put_block(torch_writer *writer, size_t *count, uint64_t address, uint64_t bytes, const layout_block *live)
{
    uint32_t stack = LOCH_RECORDING_NONE;
    list_next(writer, count);
    dict_begin(writer);
    put_item_number(writer, WORD_address, address);
    put_item_number(writer, WORD_size, bytes);
    put_item_number(writer, WORD_requested_size, live ? bytes : 0);
    put_item_word(writer, WORD_state, live ? WORD_active_allocated : WORD_inactive);
    if (live) {
        const loch_recording_block *block = (const loch_recording_block *)writer->recording->blocks.data + live->block;
        stack = ((const loch_recording_event *)writer->recording->events.data)[block->alloc_event].stack;
        put_item_tag(writer, block->tag);
    }
    put_item_stack(writer, stack);
    dict_end(writer);
}

/* Writes a segment with its blocks, which fill it without gaps. `next` is the first block that is not written yet. */
static void put_segment(torch_writer *writer, const layout_segment *segment, uint32_t number, size_t *next)
{
    const lochi_array *live = &writer->layout.live;
    const layout_block *all = live->data;
    const bool is_expandable = ((const uint8_t *)writer->layout.expandable.data)[segment->device];
    const uint64_t bytes = segment->end - segment->start;
    uint64_t active = 0, at = segment->start;
    size_t count;
    dict_begin(writer);
    put_word(writer, WORD_blocks);
    list_begin(writer, &count);
    for (; *next < live->count; ++*next) {
        const layout_block *block = &all[*next];
        if (block->device > segment->device || (block->device == segment->device && block->address >= segment->end))
            break;
        if (block->device < segment->device || block->address < at) continue; /* a part of the block before */
        const uint64_t room = segment->end - block->address, size = block->bytes < room ? block->bytes : room;
        if (block->address > at) put_block(writer, &count, at, block->address - at, NULL);
        put_block(writer, &count, block->address, size, block);
        at = block->address + size;
        active += size;
    }
    if (at < segment->end) put_block(writer, &count, at, segment->end - at, NULL);
    list_end(writer);
    put_item_number(writer, WORD_device, number);
    put_item_number(writer, WORD_address, segment->start);
    put_item_number(writer, WORD_total_size, bytes);
    put_item_number(writer, WORD_allocated_size, active);
    put_item_number(writer, WORD_active_size, active);
    put_item_number(writer, WORD_requested_size, active);
    put_item_number(writer, WORD_stream, 0);
    put_item_word(writer, WORD_segment_type, bytes > SMALL_SEGMENT ? WORD_large : WORD_small);
    put_word(writer, WORD_segment_pool_id);
    put_number(writer, 0);
    put_number(writer, 0);
    put(writer, 0x86); /* TUPLE2 */
    put_item_bool(writer, WORD_is_expandable, is_expandable);
    put_item_stack(writer, LOCH_RECORDING_NONE);
    dict_end(writer);
}

/* --- the snapshot --- */

/* Returns the number of a device in PyTorch: N of "cuda:N" if all names are of that kind, otherwise its index. */
static uint32_t device_number(const loch_recording *recording, size_t index)
{
    const size_t count = recording->info.devices;
    const char *first = loch_recording_get_name(recording, LOCH_RECORDING_DEVICE, 0);
    const char *colon = strrchr(first, ':');
    uint32_t number = (uint32_t)index;
    for (size_t i = 0; i < count; i++) {
        const char *name = loch_recording_get_name(recording, LOCH_RECORDING_DEVICE, i);
        char *end = NULL;
        if (!colon || strncmp(name, first, (size_t)(colon - first) + 1) != 0) return (uint32_t)index;
        const char *digits = name + (colon - first) + 1;
        const unsigned long value = strtoul(digits, &end, 10);
        if (*digits < '0' || *digits > '9' || *end || value >= DEVICES_MAX) return (uint32_t)index;
        if (i == index) number = (uint32_t)value;
    }
    return number;
}

static void put_settings(torch_writer *writer)
{
    bool is_expandable = false;
    for (size_t i = 0; i < writer->recording->info.devices; i++)
        is_expandable = is_expandable || ((const uint8_t *)writer->layout.expandable.data)[i];
    put_word(writer, WORD_allocator_settings);
    dict_begin(writer);
    put_word(writer, WORD_PYTORCH_CUDA_ALLOC_CONF);
    put_text(writer, "", 0);
    put_word(writer, WORD_max_split_size);
    put(writer, 'J');
    put_bytes(writer, UINT32_MAX, 4); /* -1 */
    put_word(writer, WORD_garbage_collection_threshold);
    put(writer, 'G');
    put_bytes(writer, 0, 8);
    put_item_bool(writer, WORD_expandable_segments, is_expandable);
    put_word(writer, WORD_roundup_power2_divisions);
    put(writer, '}');
    dict_end(writer);
    put_word(writer, WORD_external_annotations);
    put(writer, ']');
}

/* Returns the number of events at the start that tell of blocks and ranges which were there before. */
static size_t count_present(const loch_recording *recording)
{
    const loch_recording_event *events = recording->events.data;
    const loch_recording_block *blocks = recording->blocks.data;
    size_t present = 0;
    for (size_t i = 0; i < recording->events.count && !events[i].time_ns; i++) {
        if (events[i].kind == LOCH_RECORDED_ALLOC && !blocks[events[i].subject].is_present) break;
        if (events[i].kind == LOCH_RECORDED_ALLOC) present = i + 1;
    }
    return present;
}

static loch_status put_snapshot(torch_writer *writer)
{
    const loch_recording *recording = writer->recording;
    const size_t devices = recording->info.devices;
    uint32_t numbers = 0; /* the largest number of a device, plus 1 */
    for (size_t i = 0; i < devices; i++)
        numbers = device_number(recording, i) >= numbers ? device_number(recording, i) + 1 : numbers;
    size_t count, next = 0;
    put(writer, 0x80); /* PROTO */
    put(writer, 4);
    dict_begin(writer);
    put_word(writer, WORD_segments);
    list_begin(writer, &count);
    for (size_t i = 0; i < writer->layout.segments.count; i++) {
        const layout_segment *segment = (const layout_segment *)writer->layout.segments.data + i;
        list_next(writer, &count);
        put_segment(writer, segment, device_number(recording, segment->device), &next);
    }
    list_end(writer);
    put_word(writer, WORD_device_traces);
    list_begin(writer, &count);
    for (uint32_t number = 0; number < numbers; number++) {
        size_t device = 0;
        while (device < devices && device_number(recording, device) != number)
            device++;
        list_next(writer, &count);
        if (device == devices) {
            put(writer, ']');
            continue;
        }
        const loch_status status = put_trace(writer, (uint32_t)device);
        if (status != LOCH_OK) return status;
    }
    list_end(writer);
    put_settings(writer);
    dict_end(writer);
    put(writer, '.');
    return LOCH_OK;
}

loch_status lochi_insight_write_torch(const loch_recording *recording, const loch_recording_options *options,
                                      insight_sink *sink)
{
    torch_writer writer = {.recording = recording, .options = options, .file = sink->file, .is_good = true};
    const size_t blocks = recording->blocks.count;
    writer.all = recording->events.count * recording->info.devices;
    writer.present = count_present(recording);
    writer.tags.count = recording->info.tags;
    writer.is_good = lochi_array_reserve(&writer.tags, recording->info.tags, sizeof(uint32_t)) &&
                     lochi_array_reserve(&writer.stacks, recording->stacks.count, sizeof(uint32_t)) &&
                     lochi_array_reserve(&writer.bytes, blocks, sizeof(uint64_t)) &&
                     lochi_array_reserve(&writer.moved, blocks, sizeof(uint64_t)) &&
                     lochi_insight_torch_layout_create(recording, &writer.layout);
    loch_status status = LOCH_OK;
    if (writer.is_good) status = put_snapshot(&writer);
    if (status == LOCH_OK && !writer.is_good) status = lochi_insight_no_memory(sink->path);
    lochi_insight_torch_layout_free(&writer.layout);
    lochi_array_free(&writer.tags);
    lochi_array_free(&writer.stacks);
    lochi_table_free(&writer.frames);
    lochi_table_free(&writer.live);
    lochi_array_free(&writer.bytes);
    lochi_array_free(&writer.moved);
    return status;
}
