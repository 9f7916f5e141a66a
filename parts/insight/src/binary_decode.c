/* SPDX-License-Identifier: MIT */
/* Decodes records of events. Every byte is checked against the end of its chunk: a record that the end of a cut file
 * interrupts ends its chunk, any other record that does not fit is an error. */
#include "binary.h"
#include "kit/fail.h"
#include <inttypes.h>

/* Lengths of address in files with addresses; all other lengths are powers of two. */
static const uint8_t decode_address_lengths[] = {2, 3, 4, 8};

/* Extends the sign of a number of some bytes. */
static uint64_t decode_signed(uint64_t value, size_t bytes)
{
    if (!bytes || bytes >= 8) return value;
    const unsigned shift = (unsigned)(64 - 8 * bytes);
    return (uint64_t)((int64_t)(value << shift) >> shift);
}

/* Bytes of a record that are left. A field that does not fit sets `is_short` and reads as zero. */
typedef struct decode_bytes {
    const uint8_t *at, *end;
    bool is_short;
} decode_bytes;

static uint64_t decode_take(decode_bytes *bytes, size_t count)
{
    if ((size_t)(bytes->end - bytes->at) < count) {
        bytes->is_short = true;
        bytes->at = bytes->end;
        return 0;
    }
    const uint64_t value = binary_get(bytes->at, count);
    bytes->at += count;
    return value;
}

static void decode_time(binary_cursor *cursor, decode_bytes *bytes, uint8_t head)
{
    const uint64_t step = decode_take(bytes, (size_t)1 << (head >> 3 & 3));
    cursor->ticks = cursor->ticks + step < cursor->ticks ? UINT64_MAX : cursor->ticks + step;
}

/* Decodes the address, or the number of the block in files without addresses. */
static void decode_address(const binary_file *file, binary_cursor *cursor, decode_bytes *bytes, uint8_t head)
{
    const unsigned code = head >> 5 & 3;
    binary_record *record = &cursor->record;
    if (file->has_addresses) {
        const size_t length = decode_address_lengths[code];
        const uint64_t value = decode_take(bytes, length);
        record->address = length == 8 ? value : cursor->address + 16 * decode_signed(value, length);
        cursor->address = record->address;
        return;
    }
    const size_t length = (size_t)1 << code;
    const uint64_t step = decode_signed(decode_take(bytes, length), length);
    if (record->kind == BINARY_ALLOC)
        record->address = cursor->number = cursor->number + 1 + step;
    else
        record->address = cursor->number - step;
}

static void decode_block(const binary_file *file, binary_cursor *cursor, decode_bytes *bytes, uint8_t head)
{
    binary_record *record = &cursor->record;
    const uint8_t flags = head & BINARY_HAS_FLAGS ? (uint8_t)decode_take(bytes, 1) : 0;
    decode_time(cursor, bytes, head);
    decode_address(file, cursor, bytes, head);
    if (record->kind == BINARY_ALLOC || record->kind == BINARY_RESIZE)
        record->bytes = decode_take(bytes, (size_t)1 << (flags & 3));
    if (flags & BINARY_ALLOCATOR_FOLLOWS) cursor->allocator = (uint16_t)decode_take(bytes, 2);
    record->has_stream = flags & BINARY_STREAM_FOLLOWS;
    record->names_stream = flags & (BINARY_STREAM_FOLLOWS | BINARY_STREAM_IS_NAMED);
    record->stream = record->has_stream ? (uint16_t)decode_take(bytes, 2) : cursor->stream;
    if (flags & BINARY_TAG_FOLLOWS) cursor->tag = (uint16_t)decode_take(bytes, 2);
    if (flags & BINARY_ALIGNMENT_FOLLOWS) record->alignment = (uint8_t)decode_take(bytes, 1) & 63;
    if (flags & BINARY_STACK_FOLLOWS) record->stack = (uint32_t)decode_take(bytes, 4);
    if (record->kind == BINARY_MOVE) record->bytes = decode_take(bytes, 8);
    if (record->kind == BINARY_ALLOC) cursor->stream = record->stream;
    record->allocator = cursor->allocator;
    record->tag = cursor->tag;
}

/* Decodes a record with LEB128 numbers. Numbers that are missing are zero. */
static void decode_other(binary_cursor *cursor, decode_bytes *bytes, uint8_t head)
{
    binary_record *record = &cursor->record;
    record->sub_kind = (uint8_t)decode_take(bytes, 1);
    const size_t length = (size_t)decode_take(bytes, 1);
    decode_time(cursor, bytes, head);
    if ((size_t)(bytes->end - bytes->at) < length) {
        bytes->is_short = true;
        return;
    }
    const uint8_t *at = bytes->at, *end = bytes->at + length;
    for (size_t i = 0; at && at < end && i < BINARY_NUMBERS_MAX; i++)
        at = binary_get_leb(at, end, &record->numbers[i]);
    bytes->at = end;
}

/* Enters the present chunk: sets the state of its header. */
static void decode_enter(const binary_file *file, binary_cursor *cursor)
{
    const uint8_t *head = file->source->data + cursor->chunks[cursor->at].begin;
    cursor->ticks = binary_get(head + 16, 8);
    cursor->number = binary_get(head + 48, 8);
    cursor->address = 0;
    cursor->allocator = cursor->stream = cursor->tag = 0;
    cursor->next = cursor->chunks[cursor->at].begin + BINARY_CHUNK_HEADER_BYTES;
}

loch_status lochi_insight_binary_advance(const binary_file *file, binary_cursor *cursor)
{
    const uint8_t *data = file->source->data;
    for (; cursor->at < cursor->count; cursor->at++, cursor->next = 0) {
        const binary_chunk *chunk = &cursor->chunks[cursor->at];
        if (!cursor->next) decode_enter(file, cursor);
        if (cursor->next >= chunk->end || !data[cursor->next]) continue;
        const uint8_t head = data[cursor->next];
        decode_bytes bytes = {data + cursor->next + 1, data + chunk->end, false};
        cursor->record =
            (binary_record){.kind = head & 7, .stack = LOCH_RECORDING_NONE, .place = (uint64_t)cursor->next};
        if (!cursor->record.kind || cursor->record.kind > BINARY_OTHER)
            return LOCH_FAIL(INVALID, "%s: byte %zu: there is no kind %u of records", file->source->path, cursor->next,
                             cursor->record.kind);
        if (cursor->record.kind == BINARY_OTHER)
            decode_other(cursor, &bytes, head);
        else
            decode_block(file, cursor, &bytes, head);
        if (bytes.is_short && chunk->is_cut) continue;
        if (bytes.is_short)
            return LOCH_FAIL(INVALID, "%s: byte %zu: the record does not fit into its chunk", file->source->path,
                             cursor->next);
        cursor->next = (size_t)(bytes.at - data);
        if (cursor->ticks > cursor->reached) cursor->reached = cursor->ticks;
        cursor->record.ticks = cursor->reached;
        return LOCH_OK;
    }
    cursor->is_done = true;
    return LOCH_OK;
}
