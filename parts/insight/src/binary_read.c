/* SPDX-License-Identifier: MIT */
/* Reads files of the recorder. Chunks are found by their marks and sorted by thread and sequence; the records of all
 * threads are merged by ticks through a heap, twice: the first pass finds blocks that were there before the start, the
 * second builds the events. Blocks are found by allocator and address, or by number in files without addresses.
 *
 * What is missing does not fail the reading: a chunk without its mark is left out, a cut file ends where it was cut,
 * and events of blocks whose allocation is not in the file (a ring starts in the middle) are counted and left out. */
#include "binary.h"
#include "binary_ranges.h"
#include "kit/fail.h"
#include <inttypes.h>
#include <stdlib.h>

#define READ_PROGRESS_RECORDS 65536
#define READ_UNCONFIRMED 1 /* in `reserved[0]` of a block: present by a record that was not reached yet */

__extension__ typedef unsigned __int128 read_wide;

typedef struct binary_reader {
    const insight_source *source;
    const loch_recording_options *options;
    loch_recording *recording;
    binary_file file;
    size_t chunk_bytes;
    uint64_t ticks0, ns0, ticks, ns; /* `ticks` take `ns` nanoseconds */
    uint64_t lost;                   /* by records */
    lochi_array chunks;              /* of binary_chunk: those with events */
    lochi_array cursors;             /* of binary_cursor: one for each thread */
    lochi_array heap;                /* of uint32_t: cursors, the next record first */
    binary_names names;
    lochi_table blocks; /* key of allocator and address -> latest block there */
    binary_ranges ranges;
    bool has_dropped;
    binary_cursor *reading; /* cursor of the present record */
} binary_reader;

static loch_status read_fail(const binary_reader *reader, uint64_t place, const char *reason)
{
    return LOCH_FAIL(INVALID, "%s: byte %" PRIu64 ": %s", reader->source->path, place, reason);
}

static loch_status read_no_memory(const binary_reader *reader)
{
    return lochi_insight_no_memory(reader->source->path);
}

/* --- header and chunks --- */

static loch_status read_header(binary_reader *reader)
{
    const uint8_t *head = reader->source->data;
    loch_recording_info *info = &reader->recording->info;
    if (reader->source->bytes < BINARY_HEADER_BYTES || memcmp(head, BINARY_MAGIC, 8) != 0)
        return read_fail(reader, 0, "a recording starts with a header of 4096 bytes");
    if (binary_get(head + 8, 4) != BINARY_VERSION)
        return read_fail(reader, 8, "this version of recordings is not known; version 1 is");
    reader->chunk_bytes = (size_t)binary_get(head + 12, 4);
    if (reader->chunk_bytes < BINARY_CHUNK_BYTES_MIN || reader->chunk_bytes > BINARY_CHUNK_BYTES_MAX ||
        reader->chunk_bytes % 4096)
        return read_fail(reader, 12, "a chunk has 4 KiB to 16 MiB, in steps of 4 KiB");
    reader->ticks0 = binary_get(head + 16, 8);
    reader->ns0 = binary_get(head + 24, 8);
    const uint64_t ticks1 = binary_get(head + 32, 8), ns1 = binary_get(head + 40, 8);
    const bool is_good = ticks1 > reader->ticks0 && ns1 > reader->ns0;
    reader->ticks = is_good ? ticks1 - reader->ticks0 : 1;
    reader->ns = is_good ? ns1 - reader->ns0 : 1;
    const uint64_t flags = binary_get(head + 68, 4);
    reader->file = (binary_file){reader->source, flags & BINARY_HAS_ADDRESSES};
    info->started_ns = binary_get(head + 48, 8);
    info->lost = binary_get(head + 56, 8);
    info->has_addresses = reader->file.has_addresses;
    info->was_ended = (flags & BINARY_WAS_ENDED) != 0;
    info->program = strndup((const char *)head + 72, BINARY_PROGRAM_MAX - 1);
    return info->program ? LOCH_OK : read_no_memory(reader);
}

static int read_compare_chunks(const void *a, const void *b)
{
    const binary_chunk *x = a, *y = b;
    if (x->thread != y->thread) return x->thread < y->thread ? -1 : 1;
    if (x->sequence != y->sequence) return x->sequence < y->sequence ? -1 : 1;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* Finds the chunks, and reads those with names: first all names, then the call stacks. */
static loch_status read_chunks(binary_reader *reader)
{
    const size_t bytes = reader->source->bytes;
    for (int pass = 1; pass <= 2; pass++)
        for (size_t at = BINARY_HEADER_BYTES; at < bytes && bytes - at >= BINARY_CHUNK_HEADER_BYTES;
             at += reader->chunk_bytes) {
            const uint8_t *head = reader->source->data + at;
            const bool is_cut = bytes - at < reader->chunk_bytes;
            const size_t end = is_cut ? bytes : at + reader->chunk_bytes;
            const uint64_t kind = binary_get(head + 4, 4);
            if (binary_get(head, 4) != BINARY_CHUNK_MAGIC) continue;
            if (kind == BINARY_NAMES)
                LOCH_RETURN(lochi_insight_binary_names_read(&reader->names, at + BINARY_CHUNK_HEADER_BYTES, end, pass));
            if (kind != BINARY_EVENTS || pass == 2) continue;
            const binary_chunk chunk = {binary_get(head + 8, 8), at, end, (uint32_t)binary_get(head + 24, 4), is_cut};
            if (!lochi_array_append(&reader->chunks, &chunk, 1, sizeof chunk)) return read_no_memory(reader);
        }
    if (reader->chunks.count)
        qsort(reader->chunks.data, reader->chunks.count, sizeof(binary_chunk), read_compare_chunks);
    return LOCH_OK;
}

/* Makes one cursor for each thread. */
static loch_status read_threads(binary_reader *reader)
{
    const binary_chunk *chunks = reader->chunks.data;
    for (size_t i = 0, end; i < reader->chunks.count; i = end) {
        const char *name = (const char *)reader->source->data + chunks[i].begin + 32;
        char numbered[32];
        size_t length = strnlen(name, BINARY_NAME_MAX);
        if (!length) {
            length = (size_t)snprintf(numbered, sizeof numbered, "thread %" PRIu32, chunks[i].thread);
            name = numbered;
        }
        for (end = i + 1; end < reader->chunks.count && chunks[end].thread == chunks[i].thread;)
            end++;
        if (reader->cursors.count > UINT16_MAX)
            return read_fail(reader, chunks[i].begin, "there are more than 65536 threads");
        const uint32_t thread =
            lochi_insight_recording_append_name(reader->recording, LOCH_RECORDING_THREAD, name, length);
        const binary_cursor cursor = {.chunks = &chunks[i], .count = end - i, .thread = (uint16_t)thread};
        if (thread == LOCH_RECORDING_NONE || !lochi_array_append(&reader->cursors, &cursor, 1, sizeof cursor))
            return read_no_memory(reader);
    }
    return LOCH_OK;
}

/* --- the merge --- */

/* Compares the records that two cursors stand at: by ticks, allocations last, then by thread. */
static bool read_is_before(const binary_reader *reader, uint32_t a, uint32_t b)
{
    const binary_cursor *cursors = reader->cursors.data;
    const binary_record *x = &cursors[a].record, *y = &cursors[b].record;
    if (x->ticks != y->ticks) return x->ticks < y->ticks;
    if ((x->kind == BINARY_ALLOC) != (y->kind == BINARY_ALLOC)) return y->kind == BINARY_ALLOC;
    return a < b;
}

/* Moves the item at `at` down to its place in the heap. */
static void read_sink(const binary_reader *reader, size_t at)
{
    uint32_t *heap = reader->heap.data;
    for (;;) {
        size_t least = at;
        for (size_t child = 2 * at + 1; child <= 2 * at + 2 && child < reader->heap.count; child++)
            if (read_is_before(reader, heap[child], heap[least])) least = child;
        if (least == at) return;
        const uint32_t other = heap[at];
        heap[at] = heap[least];
        heap[least] = other;
        at = least;
    }
}

typedef loch_status read_visitor(binary_reader *reader, const binary_cursor *cursor);

/* Calls the visitor for every record of all threads, in order of time. */
static loch_status read_merge(binary_reader *reader, read_visitor *visit, double progress_from)
{
    binary_cursor *cursors = reader->cursors.data;
    uint32_t *heap = reader->heap.data;
    size_t records = 0, passed = 0;
    reader->heap.count = 0;
    for (uint32_t i = 0; i < reader->cursors.count; i++) {
        cursors[i] =
            (binary_cursor){.chunks = cursors[i].chunks, .count = cursors[i].count, .thread = cursors[i].thread};
        LOCH_RETURN(lochi_insight_binary_advance(&reader->file, &cursors[i]));
        if (!cursors[i].is_done) heap[reader->heap.count++] = i;
    }
    for (size_t i = reader->heap.count / 2; i > 0; i--)
        read_sink(reader, i - 1);
    while (reader->heap.count) {
        binary_cursor *cursor = &cursors[heap[0]];
        const size_t chunk = cursor->at;
        LOCH_RETURN(visit(reader, cursor));
        LOCH_RETURN(lochi_insight_binary_advance(&reader->file, cursor));
        if (cursor->is_done) heap[0] = heap[--reader->heap.count];
        read_sink(reader, 0);
        passed += cursor->at - chunk;
        if (++records % READ_PROGRESS_RECORDS || !reader->options->progress) continue;
        const double part = (double)passed / (double)reader->chunks.count;
        LOCH_RETURN(reader->options->progress(progress_from + part / 2, reader->options->user));
    }
    return LOCH_OK;
}

/* --- events --- */

static uint64_t read_time(const binary_reader *reader, uint64_t ticks)
{
    if (ticks <= reader->ticks0) return reader->ns0;
    const read_wide ns = (read_wide)(ticks - reader->ticks0) * reader->ns / reader->ticks + reader->ns0;
    return ns > UINT64_MAX ? UINT64_MAX : (uint64_t)ns;
}

/* Makes one key of an allocator and an address: the bits of the number come from the top, where addresses have none. */
static uint64_t read_key(const binary_reader *reader, uint64_t number, uint64_t address)
{
    uint64_t top = 0;
    if (!reader->file.has_addresses) return address;
    for (unsigned i = 0; i < 16; i++)
        top |= (number >> i & 1) << (63 - i);
    return address ^ top;
}

static loch_recording_block *read_block_at(const binary_reader *reader, uint32_t index)
{
    return (loch_recording_block *)reader->recording->blocks.data + index;
}

/* Returns the latest block at an address, live or not; LOCH_RECORDING_NONE. */
static uint32_t read_find(const binary_reader *reader, uint32_t allocator, uint64_t address)
{
    const uint32_t found = lochi_table_find(&reader->blocks, read_key(reader, allocator, address));
    if (found == UINT32_MAX || !reader->file.has_addresses) return found;
    return read_block_at(reader, found)->allocator == allocator ? found : LOCH_RECORDING_NONE;
}

static bool read_is_live(const binary_reader *reader, uint32_t block)
{
    return block != LOCH_RECORDING_NONE && read_block_at(reader, block)->free_event == LOCH_RECORDING_NONE;
}

static void read_drop_event(binary_reader *reader, uint32_t event)
{
    ((loch_recording_event *)reader->recording->events.data)[event].kind = INSIGHT_DROPPED_EVENT;
    reader->has_dropped = true;
}

static uint32_t read_stack(const binary_reader *reader, uint64_t number)
{
    return lochi_table_find(&reader->names.stacks, number);
}

/* Adds a block that starts now, or before the start. */
static loch_status read_add_block(binary_reader *reader, const loch_recording_block *block,
                                  const loch_recording_event *event, uint64_t address)
{
    loch_recording_block added = *block;
    added.id = reader->file.has_addresses ? reader->recording->blocks.count : address;
    added.address = reader->file.has_addresses ? address : 0;
    const uint32_t index = lochi_insight_recording_add_alloc(reader->recording, &added, event);
    if (index == LOCH_RECORDING_NONE ||
        !lochi_table_set(&reader->blocks, read_key(reader, block->allocator, address), index))
        return read_no_memory(reader);
    return LOCH_OK;
}

/* Ends a block whose free is not in the file, because another block took its address. */
static loch_status read_close(binary_reader *reader, uint32_t block, const loch_recording_event *event)
{
    loch_recording_event closing = *event;
    closing.stream = read_block_at(reader, block)->stream;
    closing.stack = LOCH_RECORDING_NONE;
    closing.flags = 0;
    reader->recording->info.unknown++;
    if (lochi_insight_recording_add_free(reader->recording, block, &closing) == LOCH_RECORDING_NONE)
        return read_no_memory(reader);
    return LOCH_OK;
}

static loch_status read_alloc(binary_reader *reader, const binary_record *record, loch_recording_event *event,
                              uint32_t allocator)
{
    loch_recording_block block = {.bytes = record->bytes,
                                  .allocator = (uint16_t)allocator,
                                  .stream = record->stream,
                                  .alignment = record->alignment};
    LOCH_RETURN(lochi_insight_binary_names_find(&reader->names, LOCH_RECORDING_TAG, record->tag, &block.tag));
    event->stream = record->stream;
    const uint32_t old = read_find(reader, allocator, record->address);
    if (read_is_live(reader, old)) {
        loch_recording_block *known = read_block_at(reader, old);
        if (known->reserved[0] == READ_UNCONFIRMED) { /* the record that is still to come means this allocation */
            known->reserved[0] = INSIGHT_DROPPED_BLOCK;
            read_drop_event(reader, known->alloc_event);
        } else if (reader->file.has_addresses) {
            LOCH_RETURN(read_close(reader, old, event));
        }
    }
    if (old != LOCH_RECORDING_NONE && !reader->file.has_addresses &&
        read_block_at(reader, old)->reserved[0] != INSIGHT_DROPPED_BLOCK)
        return read_fail(reader, record->place, "the block was allocated before");
    return read_add_block(reader, &block, event, record->address);
}

static loch_status read_move(binary_reader *reader, const binary_record *record, const loch_recording_event *event)
{
    const uint64_t to = read_key(reader, read_block_at(reader, event->subject)->allocator, record->bytes);
    if (reader->file.has_addresses) {
        const uint32_t other = lochi_table_find(&reader->blocks, to);
        if (other != event->subject && read_is_live(reader, other)) LOCH_RETURN(read_close(reader, other, event));
        lochi_table_remove(&reader->blocks,
                           read_key(reader, read_block_at(reader, event->subject)->allocator, record->address));
        if (!lochi_table_set(&reader->blocks, to, event->subject)) return read_no_memory(reader);
    }
    return lochi_insight_recording_add_event(reader->recording, event) == LOCH_RECORDING_NONE ? read_no_memory(reader)
                                                                                              : LOCH_OK;
}

/* Adds an event of one block. */
static loch_status read_block(binary_reader *reader, const binary_record *record, loch_recording_event *event)
{
    uint32_t allocator;
    LOCH_RETURN(
        lochi_insight_binary_names_find(&reader->names, LOCH_RECORDING_ALLOCATOR, record->allocator, &allocator));
    event->stack = record->stack == LOCH_RECORDING_NONE ? record->stack : read_stack(reader, record->stack);
    if (record->kind == BINARY_ALLOC) return read_alloc(reader, record, event, allocator);
    event->subject = read_find(reader, allocator, record->address);
    const bool is_live = read_is_live(reader, event->subject);
    if (record->kind == BINARY_FREE) {
        reader->reading->has_refused = !is_live;
        reader->reading->refused = read_key(reader, allocator, record->address);
    }
    if (!is_live) {
        reader->recording->info.unknown++;
        return LOCH_OK;
    }
    event->stream = record->has_stream ? record->stream : read_block_at(reader, event->subject)->stream;
    event->flags = record->kind == BINARY_FREE && record->names_stream;
    event->value = record->kind == BINARY_USE ? 0 : record->bytes;
    if (record->kind == BINARY_FREE)
        return lochi_insight_recording_add_free(reader->recording, event->subject, event) == LOCH_RECORDING_NONE
                   ? read_no_memory(reader)
                   : LOCH_OK;
    event->kind = record->kind == BINARY_USE      ? LOCH_RECORDED_USE
                  : record->kind == BINARY_RESIZE ? LOCH_RECORDED_RESIZE
                                                  : LOCH_RECORDED_MOVE;
    if (record->kind == BINARY_MOVE) return read_move(reader, record, event);
    return lochi_insight_recording_add_event(reader->recording, event) == LOCH_RECORDING_NONE ? read_no_memory(reader)
                                                                                              : LOCH_OK;
}

static void read_undo(binary_reader *reader, uint32_t allocator, uint64_t address, uint16_t thread)
{
    const loch_recording_event *events = reader->recording->events.data;
    const uint32_t block = read_find(reader, allocator, address);
    binary_cursor *cursor = reader->reading;
    if (cursor->has_refused && cursor->refused == read_key(reader, allocator, address)) { /* it was left out */
        cursor->has_refused = false;
        reader->recording->info.unknown--;
        return;
    }
    if (block == LOCH_RECORDING_NONE || read_is_live(reader, block) ||
        events[read_block_at(reader, block)->free_event].thread != thread) {
        reader->recording->info.unknown++;
        return;
    }
    read_drop_event(reader, read_block_at(reader, block)->free_event);
    read_block_at(reader, block)->free_event = LOCH_RECORDING_NONE;
}

/* Adds an event that is not of one block. */
static loch_status read_other(binary_reader *reader, const binary_record *record, loch_recording_event *event)
{
    const uint64_t *numbers = record->numbers;
    uint32_t first = 0;
    const bool has_device = record->sub_kind >= BINARY_TAKEN && record->sub_kind <= BINARY_CALL;
    if (record->sub_kind != BINARY_LOST && record->sub_kind <= BINARY_RESERVE)
        LOCH_RETURN(lochi_insight_binary_names_find(
            &reader->names, has_device ? LOCH_RECORDING_DEVICE : LOCH_RECORDING_ALLOCATOR, numbers[0], &first));
    event->stream = has_device ? (uint16_t)first : 0;
    event->subject = first;
    event->value = numbers[1];
    switch (record->sub_kind) {
    case BINARY_PRESENT: {
        const uint32_t block = read_find(reader, first, numbers[1]);
        if (read_is_live(reader, block) && read_block_at(reader, block)->reserved[0] == READ_UNCONFIRMED)
            read_block_at(reader, block)->reserved[0] = 0;
        return LOCH_OK;
    }
    case BINARY_TAKEN:
        return lochi_insight_binary_ranges_take(&reader->ranges, event, numbers) ? LOCH_OK : read_no_memory(reader);
    case BINARY_GOING:
        return lochi_insight_binary_ranges_give(&reader->ranges, event, numbers) ? LOCH_OK : read_no_memory(reader);
    case BINARY_CALL:
        event->kind = LOCH_RECORDED_CALL;
        event->value = numbers[2];
        LOCH_RETURN(lochi_insight_binary_names_find(&reader->names, LOCH_RECORDING_CALL, numbers[1], &event->subject));
        break;
    case BINARY_SLEEP: event->kind = LOCH_RECORDED_SLEEP; break;
    case BINARY_WAKE: event->kind = LOCH_RECORDED_WAKE; break;
    case BINARY_FAILED:
        event->kind = LOCH_RECORDED_FAIL;
        event->stream = (uint16_t)numbers[2];
        break;
    case BINARY_UNDO: read_undo(reader, first, numbers[1], event->thread); return LOCH_OK;
    case BINARY_LOST: reader->lost += numbers[0]; return LOCH_OK;
    case BINARY_RESERVE: {
        const uint32_t block = read_find(reader, first, numbers[1]);
        if (read_is_live(reader, block)) read_block_at(reader, block)->max_bytes = numbers[2];
        return LOCH_OK;
    }
    default: return LOCH_OK;
    }
    return lochi_insight_recording_add_event(reader->recording, event) == LOCH_RECORDING_NONE ? read_no_memory(reader)
                                                                                              : LOCH_OK;
}

static loch_status read_record(binary_reader *reader, const binary_cursor *cursor)
{
    const binary_record *record = &cursor->record;
    reader->reading = (binary_cursor *)reader->cursors.data + (cursor - (const binary_cursor *)reader->cursors.data);
    loch_recording_event event = {
        .time_ns = read_time(reader, record->ticks), .stack = LOCH_RECORDING_NONE, .thread = cursor->thread};
    return record->kind == BINARY_OTHER ? read_other(reader, record, &event) : read_block(reader, record, &event);
}

/* Adds the block of a `present` record at time 0. */
static loch_status read_present(binary_reader *reader, const binary_cursor *cursor)
{
    const uint64_t *numbers = cursor->record.numbers;
    loch_recording_block block = {.bytes = numbers[2],
                                  .stream = (uint16_t)numbers[4],
                                  .alignment = numbers[6] & 63,
                                  .is_present = 1,
                                  .reserved = {READ_UNCONFIRMED}};
    uint32_t allocator;
    if (cursor->record.kind != BINARY_OTHER || cursor->record.sub_kind != BINARY_PRESENT) return LOCH_OK;
    LOCH_RETURN(lochi_insight_binary_names_find(&reader->names, LOCH_RECORDING_ALLOCATOR, numbers[0], &allocator));
    LOCH_RETURN(lochi_insight_binary_names_find(&reader->names, LOCH_RECORDING_TAG, numbers[3], &block.tag));
    if (read_find(reader, allocator, numbers[1]) != LOCH_RECORDING_NONE) return LOCH_OK;
    block.allocator = (uint16_t)allocator;
    const loch_recording_event event = {.stack = numbers[5] ? read_stack(reader, numbers[5] - 1) : LOCH_RECORDING_NONE,
                                        .stream = block.stream,
                                        .thread = cursor->thread};
    return read_add_block(reader, &block, &event, numbers[1]);
}

/* Clears the marks of blocks, and removes what was dropped. */
static loch_status read_complete(binary_reader *reader)
{
    loch_recording_block *blocks = reader->recording->blocks.data;
    for (size_t i = 0; i < reader->recording->blocks.count; i++)
        if (blocks[i].reserved[0] == READ_UNCONFIRMED) blocks[i].reserved[0] = 0;
    loch_recording_range *ranges = reader->recording->ranges.data;
    for (size_t i = 0; !reader->file.has_addresses && i < reader->recording->ranges.count; i++)
        ranges[i].address = 0; /* it was a number */
    if (reader->lost > reader->recording->info.lost) reader->recording->info.lost = reader->lost;
    if (reader->has_dropped && !lochi_insight_recording_compact(reader->recording)) return read_no_memory(reader);
    return LOCH_OK;
}

loch_status lochi_insight_read_binary(const insight_source *source, const loch_recording_options *options,
                                      loch_recording *recording)
{
    binary_reader reader = {.source = source, .options = options, .recording = recording};
    reader.names = (binary_names){.recording = recording, .source = source};
    reader.ranges = (binary_ranges){.recording = recording};
    loch_status status = read_header(&reader);
    if (status == LOCH_OK) status = read_chunks(&reader);
    if (status == LOCH_OK) status = read_threads(&reader);
    if (status == LOCH_OK && !lochi_array_reserve(&reader.heap, reader.cursors.count + 1, sizeof(uint32_t)))
        status = read_no_memory(&reader);
    if (status == LOCH_OK) status = read_merge(&reader, read_present, 0);
    if (status == LOCH_OK) status = read_merge(&reader, read_record, 0.5);
    if (status == LOCH_OK) status = read_complete(&reader);
    lochi_insight_binary_names_free(&reader.names);
    lochi_array_free(&reader.chunks);
    lochi_array_free(&reader.cursors);
    lochi_array_free(&reader.heap);
    lochi_table_free(&reader.blocks);
    lochi_insight_binary_ranges_free(&reader.ranges);
    return status;
}
