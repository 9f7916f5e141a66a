/* SPDX-License-Identifier: MIT */
/* The structs of the recorder, and their invariants.
 *
 *   recorder_threads[slot] ──► its chunk: | header | record | record | 0 ...        one for each slot of threads
 *   recorder_all               header of the file, names, and the chunks: a file, or a ring in memory
 *
 * A thread writes records into a chunk of its own. It sets `busy`, crosses the light fence and reads `end`. The thread
 * that stops the recording sets all `end` to NULL, crosses the heavy fence, and waits until no thread is busy. So
 * either the first thread sees the NULL and records nothing, or the second waits for it. Then the second owns all
 * chunks.
 *
 * A thread may wait for recorder_all.lock while it is busy, so the lock is never held by a thread that waits for busy
 * threads. No lock is taken and no pool is entered with the lock held. */
#ifndef LOCHI_RECORDER_STATE_H
#define LOCHI_RECORDER_STATE_H

#include "base/lock.h"
#include "base/thread.h"
#include "memory/allocator_state.h"
#include <loch/recorder.h>
#include <loch/tag.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define RECORDER_HEADER_BYTES 4096
#define RECORDER_CHUNK_HEADER 64
#define RECORDER_CHUNK_BYTES ((size_t)32 << 10)       /* of a file */
#define RECORDER_RING_CHUNK_BYTES ((size_t)256 << 10) /* of a large ring */
#define RECORDER_CHUNK_MIN ((size_t)16 << 10)
#define RECORDER_RUN 8         /* chunks of a file that a thread maps at a time */
#define RECORDER_RECORD_MAX 96 /* bytes that the stores of one record may touch */
#define RECORDER_STREAMS 4     /* streams whose numbers a thread remembers */
#define RECORDER_NUMBER_MAX UINT16_MAX
#define RECORDER_DEVICES 64 /* further devices share the last number */

/* Header of a file, docs/recording-format.md. */
typedef struct recorder_header {
    char magic[8];
    uint32_t version;
    uint32_t chunk_bytes;
    uint64_t ticks0, ns0;
    uint64_t ticks1, ns1;
    uint64_t started_ns;
    uint64_t lost;
    uint32_t process;
    uint32_t flags;
    char program[256];
} recorder_header;

enum { RECORDER_HAS_ADDRESSES = 1, RECORDER_WAS_ENDED = 2, RECORDER_WAS_RING = 4 };

/* Header of a chunk, docs/recording-format.md. */
typedef struct recorder_chunk {
    _Atomic uint32_t magic; /* written last, with release */
    uint32_t kind;
    uint64_t sequence;
    uint64_t ticks;
    uint32_t thread;
    uint32_t reserved;
    char name[16];
    uint64_t block;
    uint64_t reserved2;
} recorder_chunk;

#define RECORDER_MAGIC 0x4b48434cu
enum { RECORDER_EVENTS = 1, RECORDER_NAMES = 2 };

/* What a thread records with. Written by the thread of the slot while it is busy, except `end`, which the thread that
 * stops the recording sets to NULL. The threads of the shared slot take turns: `busy` is their lock. */
typedef struct recorder_thread {
    _Alignas(64) atomic_bool busy;
    union {
        struct {
            uint16_t allocator, stream, tag; /* the state of the format: values of the last records */
            uint16_t has_stacks;             /* 1: allocations are recorded with call stacks */
        } now;
        uint64_t context; /* all of them: the number of the allocator, if a plain allocation needs no other field */
    };
    _Atomic(uint8_t *) at;  /* where the next record begins; stored with release, so a save can read up to it */
    _Atomic(uint8_t *) end; /* a record may begin before this; NULL: take a chunk first */
    uint64_t ticks;         /* time of the last record */
    uintptr_t address;      /* address of the last record */
    uint64_t begun;         /* time of lochi_recorder_begin, if it is not read from the cycle counter */
    uint64_t events;        /* number of records in the chunk */
    uint64_t lost;          /* events that found no chunk */
    recorder_chunk *chunk;  /* NULL without a chunk; of a ring: changed with the lock held */
    recorder_chunk *run;    /* of a file: the chunks that are mapped; NULL for none */
    uint32_t further;       /* number of unused chunks behind `chunk` in the run */
    uint32_t place;         /* number of the chunk in the ring */
    uint64_t number;        /* number of the thread */
    struct {
        uint64_t id;
        uint16_t number;
    } streams[RECORDER_STREAMS]; /* by the low bits of the id; an id of 0: empty */
    struct recorder_seen *seen;  /* numbers of call stacks by hash; NULL until the first */
} recorder_thread;

/* A chunk of the ring. */
typedef struct recorder_place {
    uint64_t sequence; /* 0: never used */
    uint64_t events;   /* records of a chunk that no thread writes any more */
    bool is_taken;     /* a thread writes it */
} recorder_place;

typedef enum recorder_phase {
    RECORDER_OFF,
    RECORDER_STARTING,
    RECORDER_ON,
    RECORDER_STOPPING,
    RECORDER_FORKED /* in the child of a fork, until what the recording held is given back */
} recorder_phase;

/* The source of the times. */
typedef enum recorder_source {
    RECORDER_COUNTER, /* the cycle counter */
    RECORDER_HOST,    /* CLOCK_MONOTONIC_RAW, in nanoseconds */
    RECORDER_SIM,     /* the time of a simulated device, without the modelled costs of driver calls */
    RECORDER_DEVICE   /* the clock of another device */
} recorder_source;

/* Everything else. Under `lock`, except where a member says otherwise. */
typedef struct recorder_state {
    lochi_lock lock;
    _Atomic(unsigned) phase; /* a recorder_phase; changed by compare-and-exchange, so one thread starts or stops */
    bool is_on;              /* chunks may be taken */
    uint64_t generation;     /* number of recordings so far */
    /* Constant from start to stop. */
    recorder_source source;
    loch_device *clock;
    loch_allocator *only; /* allocator to record; NULL for all */
    uint32_t depth;       /* of call stacks */
    size_t chunk_bytes;
    char path[512]; /* "" for a ring */
    int file;       /* -1 for a ring */
    /* Changing. */
    recorder_header *header;   /* mapped from the file, or in memory */
    uint64_t raw_ns;           /* host time of the start */
    uint64_t sequence;         /* number of chunks taken */
    uint64_t file_chunks;      /* chunks of the file in use */
    uint64_t file_bytes;       /* length of the file */
    atomic_bool is_full;       /* the file cannot be extended; read without the lock as a hint */
    atomic_bool has_said_full; /* the log has a line about that */
    int full_error;            /* errno of that */
    uint64_t lost;             /* lost events of threads that have ended, and overwritten ones */
    uint8_t *ring;
    recorder_place *places;
    size_t place_count;
    recorder_chunk *names; /* chunk that names are written to; NULL: none yet */
    uint8_t *names_at;
    recorder_chunk **names_list; /* all chunks with names of a ring */
    size_t names_count;
    uint32_t allocators, devices, streams, stacks;             /* next numbers */
    _Atomic uint64_t tags[LOCH_TAG_COUNT_MAX / 64];            /* bits of named tags; read without the lock */
    _Atomic uint64_t calls[2];                                 /* bits of named driver calls; read without the lock */
    char device_names[RECORDER_DEVICES][LOCH_DEVICE_NAME_MAX]; /* devices by number */
    struct recorder_stream *stream_table;                      /* numbers of streams by id */
    struct recorder_stack *stack_table;                        /* numbers of call stacks by hash */
    /* How often the process had loaded a module when they were named. Read without the lock, as a hint. */
    _Atomic uint64_t modules;
} recorder_state;

extern recorder_state lochi_recorder_all;
extern recorder_thread lochi_recorder_threads[LOCHI_SLOT_COUNT];

#endif
