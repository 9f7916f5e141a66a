/* SPDX-License-Identifier: MIT */
/* Numbers of the recorder's format (docs/recording-format.md). The reader is binary_read.c, binary_decode.c and
 * binary_names.c; the writer is binary_write.c. */
#ifndef LOCH_INSIGHT_BINARY_H
#define LOCH_INSIGHT_BINARY_H

#include "format.h"
#include "symbols.h"
#include <string.h>

#define BINARY_MAGIC "lochrec1"
#define BINARY_VERSION 1
#define BINARY_HEADER_BYTES ((size_t)4096)
#define BINARY_CHUNK_HEADER_BYTES ((size_t)64)
#define BINARY_CHUNK_BYTES_MIN ((size_t)4096)
#define BINARY_CHUNK_BYTES_MAX ((size_t)16 << 20)
#define BINARY_CHUNK_MAGIC 0x4b48434cu
#define BINARY_NAME_MAX 16 /* of a thread, with the final zero */
#define BINARY_PROGRAM_MAX 256

enum { BINARY_EVENTS = 1, BINARY_NAMES = 2 };                                /* kinds of chunks */
enum { BINARY_HAS_ADDRESSES = 1, BINARY_WAS_ENDED = 2, BINARY_IS_RING = 4 }; /* flags of the header */

/* Kinds of records, in bits 0 to 2 of their first byte. */
enum { BINARY_ALLOC = 1, BINARY_FREE, BINARY_USE, BINARY_RESIZE, BINARY_MOVE, BINARY_OTHER };

#define BINARY_HAS_FLAGS 0x80 /* of the first byte */

/* Flags of a record; bits 0 and 1 are the length of bytes. */
enum {
    BINARY_ALLOCATOR_FOLLOWS = 4,
    BINARY_STREAM_FOLLOWS = 8,
    BINARY_TAG_FOLLOWS = 16,
    BINARY_ALIGNMENT_FOLLOWS = 32,
    BINARY_STACK_FOLLOWS = 64,
    BINARY_STREAM_IS_NAMED = 128 /* of free: the source names the stream, and it is that of the allocation */
};

/* Sub-kinds of other records. */
enum {
    BINARY_PRESENT = 1,
    BINARY_TAKEN,
    BINARY_GOING,
    BINARY_CALL,
    BINARY_SLEEP,
    BINARY_WAKE,
    BINARY_FAILED,
    BINARY_UNDO,
    BINARY_LOST,
    BINARY_RESERVE
};

/* Types of names. */
enum {
    BINARY_NAME_TAG = 1,
    BINARY_NAME_ALLOCATOR,
    BINARY_NAME_DEVICE,
    BINARY_NAME_CALL,
    BINARY_NAME_STACK,
    BINARY_NAME_MODULE,
    BINARY_NAME_FRAME
};

#define BINARY_NUMBERS_MAX 8

/* One decoded record. */
typedef struct binary_record {
    uint64_t ticks;
    uint64_t address;                     /* of the block; in files without addresses the number of the block */
    uint64_t bytes;                       /* of alloc and resize; of move the new address */
    uint64_t numbers[BINARY_NUMBERS_MAX]; /* of other records */
    uint64_t place;                       /* offset in the file, for sentences */
    uint32_t stack;                       /* number of the stack, or LOCH_RECORDING_NONE */
    uint16_t allocator, stream, tag;
    uint8_t kind, sub_kind, alignment;
    bool has_stream, names_stream;
} binary_record;

/* One chunk of events. */
typedef struct binary_chunk {
    uint64_t sequence;
    size_t begin, end; /* in the file; `end` is that of the chunk or of the file */
    uint32_t thread;
    bool is_cut; /* the file ends inside the chunk */
} binary_chunk;

/* The place in the chunks of one thread, and the state of its records. */
typedef struct binary_cursor {
    const binary_chunk *chunks;
    size_t count, at; /* chunks of this thread; the present one */
    size_t next;      /* offset of the next record in the file; 0 before the chunk was entered */
    uint64_t ticks;   /* state of the chunk */
    uint64_t reached; /* ticks of the last record; never falls */
    uint64_t address, number;
    uint16_t allocator, stream, tag;
    uint16_t thread; /* index in the recording */
    bool is_done;
    bool has_refused;     /* the last free of this thread was of a block that is not known */
    uint64_t refused;     /* key of that block */
    binary_record record; /* the record that the cursor stands at */
} binary_cursor;

/* A decoder of a file. */
typedef struct binary_file {
    const insight_source *source;
    bool has_addresses;
} binary_file;

static inline uint64_t binary_get(const uint8_t *at, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)at[i] << (8 * i);
    return value;
}

/* Parses an unsigned LEB128 number before `end`. Returns the byte after it; NULL if it does not end, or is longer than
 * 64 bits. */
static inline const uint8_t *binary_get_leb(const uint8_t *at, const uint8_t *end, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; at < end && shift < 64; shift += 7, at++) {
        if (shift == 63 && *at > 1) return NULL;
        value |= (uint64_t)(*at & 127) << shift;
        if (*at & 128) continue;
        *out = value;
        return at + 1;
    }
    return NULL;
}

/* Moves a cursor to the next record of its thread. Sets `is_done` at the end. E_INVALID: the contents are wrong. */
loch_status lochi_insight_binary_advance(const binary_file *file, binary_cursor *cursor);

/* Addresses from `start` to below `end`. */
typedef struct binary_span {
    uint64_t start, end;
} binary_span;

/* Names of a file: what the numbers in records stand for. */
typedef struct binary_names {
    loch_recording *recording;
    const insight_source *source;
    lochi_table numbers[INSIGHT_NOUNS]; /* number in the file -> index of the name */
    lochi_table stacks;                 /* number in the file -> index of the stack */
    lochi_table frames;                 /* return address -> offset of its text */
    insight_symbols *symbols;           /* modules of the program; NULL until the first */
    lochi_array scratch;                /* of uint32_t: frames of one stack */
    lochi_array own;                    /* of binary_span: addresses of Loch in the program */
} binary_names;

/* Reads the names in the records between two offsets of the file. The first pass reads everything but call stacks; the
 * second reads these, with the frames and modules of the first. E_HOST_MEMORY. */
loch_status lochi_insight_binary_names_read(binary_names *names, size_t begin, size_t end, int pass);

/* Returns the index of a name by its number in the file; gives it a name of its own if the file has none. E_INVALID:
 * there are more than 65536. */
loch_status lochi_insight_binary_names_find(binary_names *names, loch_recording_noun noun, uint64_t number,
                                            uint32_t *out);

void lochi_insight_binary_names_free(binary_names *names);

#endif
