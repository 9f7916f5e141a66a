/* SPDX-License-Identifier: MIT */
/* Writes files in the recorder's format. Every thread fills chunks of its own; a full chunk goes to the file, and the
 * last ones follow at the end. Numbers in the file are indices of the recording.
 *
 * Ticks are nanoseconds, or larger steps if all times are multiples of them. Where events of several threads have one
 * time, ticks are smaller than nanoseconds, so that the reader merges the threads in the order of the recording. */
#include "binary.h"
#include "kit/fail.h"
#include <stdlib.h>

#define WRITE_PROGRESS_EVENTS 65536
#define WRITE_RECORD_MAX 320     /* bytes of the longest record */
#define WRITE_SMALL_EVENTS 65536 /* recordings with fewer events get small chunks, which waste less at the end */
#define WRITE_CHUNK_BYTES ((size_t)64 << 10)
#define WRITE_THREADS_MANY 256 /* recordings with more threads get small chunks */

/* The chunk of one thread, or of names, while it is filled. */
typedef struct write_chunk {
    uint8_t *data; /* of `chunk_bytes`; NULL before the first record */
    size_t used;   /* 0: there is no chunk */
    uint64_t ticks, address, number;
    uint16_t allocator, stream, tag;
} write_chunk;

typedef struct binary_writer {
    const loch_recording *recording;
    insight_sink *sink;
    size_t chunk_bytes;
    uint64_t sequence;
    uint64_t unit_ns, parts; /* a tick has `unit_ns / parts` nanoseconds; one of them is 1 */
    uint64_t rank;           /* threads that had an event at the present time, before this one */
    uint64_t last_ns;
    uint16_t last_thread;
    bool is_one_thread;    /* all events are written as those of the first thread */
    lochi_array memory;    /* of uint8_t: chunks */
    lochi_array chunks;    /* of write_chunk: one for each thread, and one for names */
    lochi_array addresses; /* of uint64_t: present address of each block, or its number */
} binary_writer;

/* --- bytes --- */

static size_t write_bytes(uint8_t *at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
    return bytes;
}

static size_t write_leb(uint8_t *at, uint64_t value)
{
    size_t count = 0;
    for (; value > 127; value >>= 7)
        at[count++] = (uint8_t)(value | 128);
    at[count++] = (uint8_t)value;
    return count;
}

/* Returns the code of the shortest length (1, 2, 4, 8) for an unsigned number. */
static unsigned write_code(uint64_t value)
{
    return value <= UINT8_MAX ? 0 : value <= UINT16_MAX ? 1 : value <= UINT32_MAX ? 2 : 3;
}

static bool write_fits(uint64_t value, size_t bytes)
{
    const uint64_t half = (uint64_t)1 << (8 * bytes - 1);
    return value + half < 2 * half;
}

/* Returns the code of the shortest length for a signed number. */
static unsigned write_signed_code(uint64_t value)
{
    return write_fits(value, 1) ? 0 : write_fits(value, 2) ? 1 : write_fits(value, 4) ? 2 : 3;
}

/* --- chunks --- */

/* Ends a chunk: writes it to the file. The last chunk of a file is written without the unused bytes. */
static void write_flush(binary_writer *writer, write_chunk *chunk, bool is_last)
{
    const size_t bytes = is_last ? chunk->used : writer->chunk_bytes;
    memset(chunk->data + chunk->used, 0, writer->chunk_bytes - chunk->used);
    fwrite(chunk->data, 1, bytes, writer->sink->file);
    chunk->used = 0;
}

/* Begins a chunk with its header. */
static void write_begin(binary_writer *writer, write_chunk *chunk, int kind, size_t thread, uint64_t ticks,
                        uint64_t number)
{
    uint8_t *at = chunk->data;
    memset(at, 0, BINARY_CHUNK_HEADER_BYTES);
    write_bytes(at, BINARY_CHUNK_MAGIC, 4);
    write_bytes(at + 4, (uint64_t)kind, 4);
    write_bytes(at + 8, writer->sequence++, 8);
    write_bytes(at + 16, ticks, 8);
    write_bytes(at + 24, thread, 4);
    if (kind == BINARY_EVENTS) {
        const char *name = loch_recording_get_name(writer->recording, LOCH_RECORDING_THREAD, thread);
        memcpy(at + 32, name, strnlen(name, BINARY_NAME_MAX - 1));
    }
    write_bytes(at + 48, number, 8);
    *chunk = (write_chunk){.data = at, .used = BINARY_CHUNK_HEADER_BYTES, .ticks = ticks, .number = number};
}

/* Returns the chunk of a thread with room for a record. */
static write_chunk *write_room(binary_writer *writer, size_t thread, uint64_t ticks)
{
    write_chunk *chunk = (write_chunk *)writer->chunks.data + thread;
    if (chunk->used && chunk->used + WRITE_RECORD_MAX > writer->chunk_bytes) {
        const uint64_t number = chunk->number;
        write_flush(writer, chunk, false);
        write_begin(writer, chunk, BINARY_EVENTS, thread, ticks, number);
    } else if (!chunk->used) {
        write_begin(writer, chunk, BINARY_EVENTS, thread, ticks, UINT64_MAX); /* so that the first number is 0 */
    }
    return chunk;
}

/* --- records --- */

/* Codes a block: its address against the last address, or its number against the last allocated number. Returns the
 * code of the length, and the value with its length. */
static unsigned write_place(const binary_writer *writer, write_chunk *chunk, const loch_recording_event *event,
                            uint64_t *value, size_t *length)
{
    const uint64_t place = ((const uint64_t *)writer->addresses.data)[event->subject];
    unsigned code;
    if (writer->recording->info.has_addresses) {
        const uint64_t step = place - chunk->address;
        const uint64_t units = (uint64_t)((int64_t)step >> 4);
        chunk->address = place;
        code = step & 15 ? 3 : write_fits(units, 2) ? 0 : write_fits(units, 3) ? 1 : write_fits(units, 4) ? 2 : 3;
        *value = code == 3 ? place : units;
        *length = code == 3 ? 8 : code + 2;
        return code;
    }
    if (event->kind == LOCH_RECORDED_ALLOC) {
        *value = place - (chunk->number + 1);
        chunk->number = place;
    } else {
        *value = chunk->number - place;
    }
    code = write_signed_code(*value);
    *length = (size_t)1 << code;
    return code;
}

static unsigned write_kind(const loch_recording_event *event)
{
    switch (event->kind) {
    case LOCH_RECORDED_ALLOC: return BINARY_ALLOC;
    case LOCH_RECORDED_FREE: return BINARY_FREE;
    case LOCH_RECORDED_USE: return BINARY_USE;
    case LOCH_RECORDED_RESIZE: return BINARY_RESIZE;
    default: return BINARY_MOVE;
    }
}

/* Chooses the fields of a record. */
static unsigned write_flags(const write_chunk *chunk, const loch_recording_block *block,
                            const loch_recording_event *event)
{
    unsigned flags = 0;
    const bool is_alloc = event->kind == LOCH_RECORDED_ALLOC;
    if (is_alloc || event->kind == LOCH_RECORDED_RESIZE) flags |= write_code(event->value);
    if (block->allocator != chunk->allocator) flags |= BINARY_ALLOCATOR_FOLLOWS;
    if (is_alloc && block->stream != chunk->stream) flags |= BINARY_STREAM_FOLLOWS;
    if (event->kind == LOCH_RECORDED_USE) flags |= BINARY_STREAM_FOLLOWS;
    if (event->kind == LOCH_RECORDED_FREE && event->stream != block->stream)
        flags |= BINARY_STREAM_FOLLOWS;
    else if (event->kind == LOCH_RECORDED_FREE && event->flags & 1)
        flags |= BINARY_STREAM_IS_NAMED;
    if (is_alloc && block->tag != chunk->tag) flags |= BINARY_TAG_FOLLOWS;
    if (is_alloc && block->alignment) flags |= BINARY_ALIGNMENT_FOLLOWS;
    if (event->stack != LOCH_RECORDING_NONE) flags |= BINARY_STACK_FOLLOWS;
    return flags;
}

static void write_block(binary_writer *writer, write_chunk *chunk, const loch_recording_event *event, uint64_t ticks)
{
    const loch_recording_block *block = loch_recording_get_blocks(writer->recording) + event->subject;
    const unsigned kind = write_kind(event), flags = write_flags(chunk, block, event);
    const unsigned time_code = write_code(ticks - chunk->ticks);
    const bool has_flags = flags || kind == BINARY_ALLOC || kind == BINARY_USE || kind == BINARY_RESIZE;
    uint64_t place;
    size_t length;
    const unsigned code = write_place(writer, chunk, event, &place, &length);
    uint8_t *at = chunk->data + chunk->used;
    *at++ = (uint8_t)(kind | time_code << 3 | code << 5 | (has_flags ? BINARY_HAS_FLAGS : 0));
    if (has_flags) *at++ = (uint8_t)flags;
    at += write_bytes(at, ticks - chunk->ticks, (size_t)1 << time_code);
    at += write_bytes(at, place, length);
    if (kind == BINARY_ALLOC || kind == BINARY_RESIZE) at += write_bytes(at, event->value, (size_t)1 << (flags & 3));
    if (flags & BINARY_ALLOCATOR_FOLLOWS) at += write_bytes(at, block->allocator, 2);
    if (flags & BINARY_STREAM_FOLLOWS) at += write_bytes(at, kind == BINARY_ALLOC ? block->stream : event->stream, 2);
    if (flags & BINARY_TAG_FOLLOWS) at += write_bytes(at, block->tag, 2);
    if (flags & BINARY_ALIGNMENT_FOLLOWS) *at++ = block->alignment;
    if (flags & BINARY_STACK_FOLLOWS) at += write_bytes(at, event->stack, 4);
    if (kind == BINARY_MOVE) {
        at += write_bytes(at, event->value, 8);
        if (writer->recording->info.has_addresses) ((uint64_t *)writer->addresses.data)[event->subject] = event->value;
    }
    chunk->allocator = block->allocator;
    if (kind == BINARY_ALLOC) {
        chunk->stream = block->stream;
        chunk->tag = (uint16_t)block->tag;
    }
    chunk->ticks = ticks;
    chunk->used = (size_t)(at - chunk->data);
}

/* Collects the numbers of an event that is not of one block, and of blocks that were there before the start. Returns
 * the sub-kind. */
static int write_numbers(const binary_writer *writer, const loch_recording_event *event, uint64_t *numbers,
                         size_t *count)
{
    const loch_recording *recording = writer->recording;
    const loch_recording_range *range = event->kind == LOCH_RECORDED_TAKE || event->kind == LOCH_RECORDED_GIVE
                                            ? loch_recording_get_ranges(recording) + event->subject
                                            : NULL;
    const loch_recording_block *block;
    *count = 3;
    switch (event->kind) {
    case LOCH_RECORDED_ALLOC:
        block = loch_recording_get_blocks(recording) + event->subject;
        numbers[0] = block->allocator;
        numbers[1] = ((const uint64_t *)writer->addresses.data)[event->subject];
        numbers[2] = block->bytes;
        numbers[3] = block->tag;
        numbers[4] = block->stream;
        numbers[5] = event->stack == LOCH_RECORDING_NONE ? 0 : (uint64_t)event->stack + 1;
        numbers[6] = block->alignment;
        *count = block->alignment ? 7 : 6;
        return BINARY_PRESENT;
    case LOCH_RECORDED_TAKE:
    case LOCH_RECORDED_GIVE:
        numbers[0] = event->stream;
        numbers[1] = recording->info.has_addresses ? range->address : (uint64_t)event->subject + 1;
        numbers[2] = range->bytes;
        numbers[3] = range->kind;
        numbers[4] = range->memory;
        *count = event->kind == LOCH_RECORDED_TAKE ? 5 : 3;
        return event->kind == LOCH_RECORDED_TAKE ? BINARY_TAKEN : BINARY_GOING;
    case LOCH_RECORDED_CALL:
        numbers[0] = event->stream;
        numbers[1] = event->subject;
        numbers[2] = event->value;
        return BINARY_CALL;
    default:
        numbers[0] = event->subject;
        numbers[1] = event->value;
        numbers[2] = event->stream;
        *count = event->kind == LOCH_RECORDED_FAIL ? 3 : 2;
        return event->kind == LOCH_RECORDED_SLEEP  ? BINARY_SLEEP
               : event->kind == LOCH_RECORDED_WAKE ? BINARY_WAKE
                                                   : BINARY_FAILED;
    }
}

static void write_record(write_chunk *chunk, int sub_kind, const uint64_t *numbers, size_t count, uint64_t ticks)
{
    size_t length = 0;
    const unsigned time_code = write_code(ticks - chunk->ticks);
    uint8_t *at = chunk->data + chunk->used, *rest = at + 3 + ((size_t)1 << time_code);
    at[0] = (uint8_t)(BINARY_OTHER | time_code << 3);
    at[1] = (uint8_t)sub_kind;
    write_bytes(at + 3, ticks - chunk->ticks, (size_t)1 << time_code);
    for (size_t i = 0; i < count; i++)
        length += write_leb(rest + length, numbers[i]);
    at[2] = (uint8_t)length;
    chunk->ticks = ticks;
    chunk->used = (size_t)(rest + length - chunk->data);
}

static void write_other(const binary_writer *writer, write_chunk *chunk, const loch_recording_event *event,
                        uint64_t ticks)
{
    uint64_t numbers[BINARY_NUMBERS_MAX] = {0};
    size_t count;
    const int sub_kind = write_numbers(writer, event, numbers, &count);
    write_record(chunk, sub_kind, numbers, count, ticks);
}

/* Writes the addresses that a growable block reserves, behind its allocation. */
static void write_reserve(const binary_writer *writer, write_chunk *chunk, const loch_recording_event *event,
                          uint64_t ticks)
{
    const loch_recording_block *block = loch_recording_get_blocks(writer->recording) + event->subject;
    const uint64_t place = ((const uint64_t *)writer->addresses.data)[event->subject];
    write_record(chunk, BINARY_RESERVE, (const uint64_t[]){block->allocator, place, block->max_bytes}, 3, ticks);
}

/* --- time --- */

static uint64_t write_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Chooses the length of a tick. */
static void write_choose_ticks(binary_writer *writer)
{
    const loch_recording_event *events = loch_recording_get_events(writer->recording);
    uint64_t unit = 0, rank = 0, most = 0;
    bool has_threads = false;
    for (size_t i = 0; i < writer->recording->events.count; i++) {
        if (unit != 1) unit = write_divisor(events[i].time_ns, unit);
        const bool is_same = i && events[i].time_ns == events[i - 1].time_ns;
        const bool is_other = i && events[i].thread != events[i - 1].thread;
        has_threads = has_threads || is_other;
        rank = is_same ? rank + is_other : 0;
        if (rank > most) most = rank;
    }
    writer->unit_ns = unit && !most ? unit : 1;
    writer->parts = most + 1;
    const uint64_t last_ns = writer->recording->info.duration_ns;
    writer->is_one_thread = !has_threads || last_ns > UINT64_MAX / writer->parts - 1;
    if (writer->is_one_thread && most) writer->parts = 1;
}

static uint64_t write_ticks(binary_writer *writer, const loch_recording_event *event)
{
    if (event->time_ns != writer->last_ns)
        writer->rank = 0;
    else if (event->thread != writer->last_thread && writer->parts > 1)
        writer->rank++;
    writer->last_ns = event->time_ns;
    writer->last_thread = event->thread;
    return event->time_ns / writer->unit_ns * writer->parts + writer->rank;
}

/* --- names --- */

/* Writes one name of two pieces. */
static void write_name(binary_writer *writer, int type, uint64_t number, const void *first, size_t first_bytes,
                       const void *second, size_t second_bytes)
{
    write_chunk *chunk = (write_chunk *)writer->chunks.data + writer->chunks.count - 1;
    const size_t need = 32 + first_bytes + second_bytes;
    if (chunk->used && chunk->used + need > writer->chunk_bytes) write_flush(writer, chunk, false);
    if (!chunk->used) write_begin(writer, chunk, BINARY_NAMES, 0, 0, 0);
    uint8_t *at = chunk->data + chunk->used;
    *at++ = (uint8_t)type;
    at += write_leb(at, number);
    at += write_leb(at, first_bytes + second_bytes);
    if (first_bytes) memcpy(at, first, first_bytes);
    if (second_bytes) memcpy(at + first_bytes, second, second_bytes);
    chunk->used = (size_t)(at - chunk->data) + first_bytes + second_bytes;
}

/* Tells whether a noun has nothing but the name that every recording gets. */
static bool write_is_plain(const loch_recording *recording, loch_recording_noun noun, const char *name)
{
    return recording->names[noun].count == 1 && !strcmp(loch_recording_get_name(recording, noun, 0), name);
}

/* Writes call stacks as texts of frames: the offset of a text stands for a return address. */
static void write_stacks(binary_writer *writer)
{
    const loch_recording *recording = writer->recording;
    const uint32_t *frames = recording->frames.data;
    const insight_stack *stacks = recording->stacks.data;
    const size_t most = (writer->chunk_bytes - BINARY_CHUNK_HEADER_BYTES - 32) / 8;
    lochi_table seen = {.keys = NULL};
    for (size_t i = 0; i < recording->frames.count; i++) {
        const char *text = (const char *)recording->text.data + frames[i];
        if (lochi_table_find(&seen, frames[i]) != UINT32_MAX) continue;
        (void)lochi_table_set(&seen, frames[i], 0); /* without memory, a text is written twice */
        write_name(writer, BINARY_NAME_FRAME, frames[i], text, strnlen(text, 8 * most), NULL, 0);
    }
    lochi_table_free(&seen);
    for (size_t i = 0; i < recording->stacks.count; i++) {
        uint8_t addresses[8 * 1024];
        size_t count = stacks[i].count < 1024 ? stacks[i].count : 1024;
        if (count > most) count = most;
        for (size_t k = 0; k < count; k++)
            write_bytes(addresses + 8 * k, frames[stacks[i].first + k], 8);
        write_name(writer, BINARY_NAME_STACK, i, addresses, 8 * count, NULL, 0);
    }
}

static void write_names(binary_writer *writer)
{
    static const struct {
        loch_recording_noun noun;
        int type;
        const char *plain;
    } rows[] = {{LOCH_RECORDING_TAG, BINARY_NAME_TAG, ""},
                {LOCH_RECORDING_ALLOCATOR, BINARY_NAME_ALLOCATOR, "memory"},
                {LOCH_RECORDING_DEVICE, BINARY_NAME_DEVICE, "device"},
                {LOCH_RECORDING_CALL, BINARY_NAME_CALL, ""}};
    const size_t most = writer->chunk_bytes - BINARY_CHUNK_HEADER_BYTES - 32 - 4;
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        if (write_is_plain(writer->recording, rows[r].noun, rows[r].plain)) continue;
        for (size_t i = 0; i < writer->recording->names[rows[r].noun].count; i++) {
            const char *name = loch_recording_get_name(writer->recording, rows[r].noun, i);
            const bool is_allocator = rows[r].type == BINARY_NAME_ALLOCATOR; /* the number of a device comes first */
            uint8_t device[2];
            write_bytes(device, lochi_insight_recording_get_device(writer->recording, (uint32_t)i), sizeof device);
            write_name(writer, rows[r].type, i, device, is_allocator ? sizeof device : 0, name, strnlen(name, most));
        }
    }
    write_stacks(writer);
}

/* --- whole files --- */

static void write_header(const binary_writer *writer)
{
    uint8_t head[BINARY_HEADER_BYTES] = {0};
    const loch_recording_info *info = &writer->recording->info;
    memcpy(head, BINARY_MAGIC, 8);
    write_bytes(head + 8, BINARY_VERSION, 4);
    write_bytes(head + 12, writer->chunk_bytes, 4);
    write_bytes(head + 32, writer->parts, 8);
    write_bytes(head + 40, writer->unit_ns, 8);
    write_bytes(head + 48, info->started_ns, 8);
    write_bytes(head + 56, info->lost, 8);
    write_bytes(head + 68,
                (info->has_addresses ? BINARY_HAS_ADDRESSES : 0u) | (info->was_ended ? BINARY_WAS_ENDED : 0u), 4);
    if (info->program) memcpy(head + 72, info->program, strnlen(info->program, BINARY_PROGRAM_MAX - 1));
    fwrite(head, 1, sizeof head, writer->sink->file);
}

/* Returns bytes of the longest name or call stack. */
static size_t write_longest(const loch_recording *recording)
{
    size_t longest = 0;
    const char *text = recording->text.data;
    for (size_t at = 0; at < recording->text.count; at += strlen(text + at) + 1)
        if (strlen(text + at) > longest) longest = strlen(text + at);
    const insight_stack *stacks = recording->stacks.data;
    for (size_t i = 0; i < recording->stacks.count; i++)
        if ((size_t)8 * stacks[i].count > longest) longest = (size_t)8 * stacks[i].count;
    return longest;
}

static void write_choose_chunks(binary_writer *writer)
{
    const loch_recording *recording = writer->recording;
    const size_t least = BINARY_CHUNK_HEADER_BYTES + 64 + write_longest(recording);
    const bool is_small = recording->events.count < WRITE_SMALL_EVENTS ||
                          recording->names[LOCH_RECORDING_THREAD].count > WRITE_THREADS_MANY;
    size_t bytes = is_small ? BINARY_CHUNK_BYTES_MIN : WRITE_CHUNK_BYTES;
    while (bytes < least && bytes < BINARY_CHUNK_BYTES_MAX)
        bytes *= 2;
    writer->chunk_bytes = bytes;
}

/* Takes memory: a chunk for each thread and one for names, and the place of each block. */
static bool write_prepare(binary_writer *writer)
{
    const loch_recording *recording = writer->recording;
    const loch_recording_block *blocks = loch_recording_get_blocks(recording);
    const size_t threads = recording->names[LOCH_RECORDING_THREAD].count;
    if (!lochi_array_reserve(&writer->chunks, threads + 1, sizeof(write_chunk)) ||
        !lochi_array_reserve(&writer->memory, threads + 1, writer->chunk_bytes) ||
        !lochi_array_reserve(&writer->addresses, recording->blocks.count + 1, sizeof(uint64_t)))
        return false;
    writer->chunks.count = threads + 1;
    for (size_t i = 0; i <= threads; i++)
        ((write_chunk *)writer->chunks.data)[i].data = (uint8_t *)writer->memory.data + i * writer->chunk_bytes;
    for (size_t i = 0; i < recording->blocks.count; i++)
        ((uint64_t *)writer->addresses.data)[i] = recording->info.has_addresses ? blocks[i].address : blocks[i].id;
    return true;
}

static loch_status write_events(binary_writer *writer, const loch_recording_options *options)
{
    const loch_recording_event *events = loch_recording_get_events(writer->recording);
    const loch_recording_block *blocks = loch_recording_get_blocks(writer->recording);
    const size_t count = writer->recording->events.count;
    if (count) writer->last_thread = events[0].thread;
    for (size_t i = 0; i < count; i++) {
        const loch_recording_event *event = &events[i];
        const uint64_t ticks = write_ticks(writer, event);
        write_chunk *chunk = write_room(writer, writer->is_one_thread ? events[0].thread : event->thread, ticks);
        if (event->kind > LOCH_RECORDED_MOVE ||
            (event->kind == LOCH_RECORDED_ALLOC && blocks[event->subject].is_present))
            write_other(writer, chunk, event, ticks);
        else
            write_block(writer, chunk, event, ticks);
        if (event->kind == LOCH_RECORDED_ALLOC && blocks[event->subject].max_bytes)
            write_reserve(writer, chunk, event, ticks);
        if (i % WRITE_PROGRESS_EVENTS == 0) LOCH_RETURN(lochi_insight_progress(options, i, count));
    }
    return LOCH_OK;
}

/* Writes the chunks that are not full: the last one without its unused bytes. */
static void write_rest(binary_writer *writer)
{
    write_chunk *chunks = writer->chunks.data, *last = NULL;
    for (size_t i = 0; i < writer->chunks.count; i++) {
        if (!chunks[i].used) continue;
        if (last) write_flush(writer, last, false);
        last = &chunks[i];
    }
    if (last) write_flush(writer, last, true);
}

loch_status lochi_insight_write_binary(const loch_recording *recording, const loch_recording_options *options,
                                       insight_sink *sink)
{
    binary_writer writer = {.recording = recording, .sink = sink};
    loch_status status = LOCH_OK;
    if (recording->names[LOCH_RECORDING_TAG].count > UINT16_MAX)
        return LOCH_FAIL(UNSUPPORTED, "%s: a recording has at most %u tags, and this has %zu", sink->path, UINT16_MAX,
                         recording->names[LOCH_RECORDING_TAG].count);
    write_choose_chunks(&writer);
    write_choose_ticks(&writer);
    if (!write_prepare(&writer)) status = lochi_insight_no_memory(sink->path);
    if (status == LOCH_OK) {
        write_header(&writer);
        status = write_events(&writer, options);
    }
    if (status == LOCH_OK) {
        write_names(&writer);
        write_rest(&writer);
    }
    lochi_array_free(&writer.memory);
    lochi_array_free(&writer.chunks);
    lochi_array_free(&writer.addresses);
    return status;
}
