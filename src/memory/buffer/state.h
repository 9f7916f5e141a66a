/* SPDX-License-Identifier: MIT */
/* The members of buffers.
 *
 *   part ──► whole ──► block of an allocator, or external memory (deleter, owner)
 *              │
 *              └──► uses: events of work that the allocator cannot track
 *
 * A part holds a reference to its whole, never to another part, and reads the address from the whole each time. If the
 * last reference to a whole is dropped while such work runs, the whole is put on the list of waiting wholes
 * (release.c). No lock is held while memory is freed, because deleters and allocators may call buffers. */
#ifndef LOCHI_BUFFER_STATE_H
#define LOCHI_BUFFER_STATE_H

#include "memory/movable.h"
#include "memory/buffer/meter.h"
#include "memory/buffer/watch.h"
#include <loch/buffer.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The mark of work on one stream that uses a buffer. */
typedef struct lochi_use {
    struct lochi_use *next;
    uint64_t stream_id;
    loch_event *event; /* recorded after the work */
} lochi_use;

/* A function that runs when the memory of a whole is freed. */
typedef struct lochi_deleter {
    struct lochi_deleter *next; /* the deleter that was added before this one */
    loch_buffer_deleter *function;
    void *user;
} lochi_deleter;

struct loch_buffer {
    atomic_size_t references;
    /* of a part, retained; NULL for a whole. A part uses only `offset` and `bytes` of the members below */
    loch_buffer *whole;
    size_t offset; /* of a part, in its whole */
    size_t bytes;
    size_t capacity; /* of the block or the external memory; at least `bytes` */
    char *address;   /* NULL if the buffer is empty; for a movable buffer it only tells whether it is empty */
    uint64_t id;
    loch_device *device; /* retained; NULL for plain external host memory */
    loch_memory_kind kind;
    loch_access access;
    bool is_on_host;
    loch_allocator *allocator; /* retained; NULL for external memory */
    size_t alignment;          /* as requested; resizes keep it */
    uint64_t stream_id;        /* of a pool's block that cannot move: the stream of its allocation; 0 if not known */
    loch_tag tag;
    loch_buffer_deleter *deleter;
    void *user;
    loch_buffer *owner;      /* retained */
    lochi_deleter *deleters; /* added deleters, newest first; guarded by the lock of uses (uses.c) */
    bool is_movable;
    lochi_movable movable; /* position of a movable buffer; it has an address while it is pinned */
    /* relaxed: contents have one writer at a time, and the ordering of the writers orders this too */
    _Atomic uint64_t version;
    lochi_watch *_Atomic watch; /* retained; NULL until the contents are first watched, then constant */
    lochi_meter *meter;         /* retained; counts `capacity`; NULL: none */
    uint64_t mark;              /* of the pool of buffers that it came from; 0: none */
    lochi_use *uses;            /* guarded by the lock of uses */
    loch_buffer *next_waiting;  /* next in the list of waiting wholes, or in a chain taken from it */
};

/* Returns the buffer that owns the memory. */
static inline loch_buffer *lochi_buffer_whole(loch_buffer *buffer)
{
    return buffer->whole ? buffer->whole : buffer;
}

/* Returns the buffer that owns the memory, for reading. */
static inline const loch_buffer *lochi_buffer_whole_const(const loch_buffer *buffer)
{
    return buffer->whole ? buffer->whole : buffer;
}

/* Counts a write to the contents, or their loss. Call it after the write: a reader that read the version before the
 * contents then sees a change if the contents may have changed meanwhile. */
static inline void lochi_buffer_touch(loch_buffer *buffer)
{
    loch_buffer *whole = lochi_buffer_whole(buffer);
    atomic_fetch_add_explicit(&whole->version, 1, memory_order_relaxed);
    lochi_watch *watch = atomic_load_explicit(&whole->watch, memory_order_acquire);
    if (watch) lochi_watch_change(watch);
}

/* Returns the first failure of a call and its cleanup. */
static inline loch_status lochi_first_failure(loch_status status, loch_status other)
{
    return status != LOCH_OK ? status : other;
}

#endif
