/* SPDX-License-Identifier: MIT */
/* The inside of buffers.
 *
 *   part ──► whole ──► block of an allocator, or memory from outside (deleter, owner)
 *              │
 *              └──► uses: events of work that the allocator cannot know of
 *
 * A part holds a reference on its whole, never on another part, and reads the address there each time. A whole whose last
 * reference goes while such work is under way is put on the list of those that wait (release.c); no lock is held while
 * memory is given back, because deleters and allocators may come back to buffers. */
#ifndef LOCHI_BUFFER_STATE_H
#define LOCHI_BUFFER_STATE_H

#include "memory/movable.h"
#include "tensor/buffer/meter.h"
#include "tensor/buffer/watch.h"
#include <loch/buffer.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Work on one stream that uses a buffer: its mark. */
typedef struct lochi_use {
    struct lochi_use *next;
    uint64_t stream_id;
    loch_event *event; /* recorded behind the work */
} lochi_use;

/* A function that runs when the memory of a whole goes. */
typedef struct lochi_deleter {
    struct lochi_deleter *next; /* added before this one */
    loch_buffer_deleter *function;
    void *user;
} lochi_deleter;

struct loch_buffer {
    atomic_size_t references;
    loch_buffer *whole; /* of a part, held; NULL for a whole. A part has `offset` and `bytes` alone of what follows */
    size_t offset;      /* of a part */
    size_t bytes;
    size_t capacity; /* of the block or the memory from outside: at least bytes */
    char *address;   /* NULL when it is empty; of a movable one only whether it is */
    uint64_t id;
    loch_device *device; /* held; NULL for plain host memory from outside */
    loch_memory_kind kind;
    loch_access access;
    bool is_on_host;
    loch_allocator *allocator; /* held; NULL for memory from outside */
    size_t alignment;          /* as asked for, kept by resizes */
    loch_tag tag;
    loch_buffer_deleter *deleter;
    void *user;
    loch_buffer *owner;      /* held */
    lochi_deleter *deleters; /* added later, the last one first; under the lock of uses (uses.c) */
    bool is_movable;
    lochi_movable movable;    /* where it is, if so; it has an address while it is pinned */
    _Atomic uint64_t version; /* relaxed: contents have one writer at a time; what orders the writer orders this, too */
    lochi_watch *_Atomic watch; /* held; NULL until somebody watches the contents, then the same to the end */
    lochi_meter *meter;         /* held; `capacity` is counted in it; NULL for none */
    uint64_t mark;              /* of the pool of buffers that it came from; 0 for none */
    lochi_use *uses;            /* under the lock of uses */
    loch_buffer *next_waiting;  /* in the list of those that wait, or of those taken from it */
};

/* Returns the buffer that has the memory. */
static inline loch_buffer *lochi_buffer_whole(loch_buffer *buffer)
{
    return buffer->whole ? buffer->whole : buffer;
}

/* Returns the buffer that has the memory, of one that is only read. */
static inline const loch_buffer *lochi_buffer_whole_const(const loch_buffer *buffer)
{
    return buffer->whole ? buffer->whole : buffer;
}

/* Counts a write to the contents, or their loss. Call it after the write: a reader that took the number before it looked at the
 * contents then knows that they may have changed meanwhile. */
static inline void lochi_buffer_touch(loch_buffer *buffer)
{
    loch_buffer *whole = lochi_buffer_whole(buffer);
    atomic_fetch_add_explicit(&whole->version, 1, memory_order_relaxed);
    lochi_watch *watch = atomic_load_explicit(&whole->watch, memory_order_acquire);
    if (watch) lochi_watch_change(watch);
}

/* Returns the first failure of a call and its clean-up. */
static inline loch_status lochi_first_failure(loch_status status, loch_status other)
{
    return status != LOCH_OK ? status : other;
}

#endif
