/* SPDX-License-Identifier: MIT */
/* The inside of buffers.
 *
 *   part ──► whole ──► block of an allocator, or memory from outside (deleter, owner)
 *              │
 *              └──► uses: events of work that the allocator cannot know of
 *
 * A part holds a reference on its whole, never on another part, and reads the address there each time. A whole whose last
 * reference goes while such work is under way is put on the list of those that wait (buffer_uses.c); no lock is held while
 * memory is given back, because deleters and allocators may come back to buffers. */
#ifndef LOCHI_BUFFER_H
#define LOCHI_BUFFER_H

#include "memory/movable.h"
#include "tensor/meter.h"
#include "tensor/watch.h"
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
    lochi_deleter *deleters; /* added later, the last one first; under the lock of uses */
    bool is_movable;
    lochi_movable movable; /* where it is, if so; it has an address while it is pinned */
    _Atomic uint64_t
        version; /* relaxed: contents have one writer at a time, and whatever orders him orders this, too */
    lochi_watch *_Atomic watch; /* held; NULL until somebody watches the contents, then the same to the end */
    lochi_meter *meter;         /* held; `capacity` is counted in it; NULL for none */
    uint64_t mark;              /* of the pool of buffers that it came from; 0 for none */
    lochi_use *uses;            /* under the lock of uses */
    loch_buffer *next_waiting;  /* in the list of those that wait, or of those taken from it */
};

/* The buffer that has the memory. */
static inline loch_buffer *lochi_buffer_whole(loch_buffer *buffer)
{
    return buffer->whole ? buffer->whole : buffer;
}

static inline const loch_buffer *lochi_buffer_whole_const(const loch_buffer *buffer)
{
    return buffer->whole ? buffer->whole : buffer;
}

/* The contents were written, or are about to be lost. Behind the write: who has read the number before he looked at the contents
 * then knows that they may have changed meanwhile. */
static inline void lochi_buffer_touch(loch_buffer *buffer)
{
    loch_buffer *whole = lochi_buffer_whole(buffer);
    atomic_fetch_add_explicit(&whole->version, 1, memory_order_relaxed);
    lochi_watch *watch = atomic_load_explicit(&whole->watch, memory_order_acquire);
    if (watch) lochi_watch_change(watch);
}

/* Has the meter count a whole that has a block of an allocator, until that goes; it follows resizes, and a detached block is no longer
 * counted. Once for a buffer, by who made it. */
void lochi_buffer_set_meter(loch_buffer *buffer, lochi_meter *meter);

/* Checks [offset, offset + bytes) against what the buffer has now. */
loch_status lochi_buffer_check(const loch_buffer *buffer, size_t offset, size_t bytes);

/* The same, and gives its address; NULL for no bytes. A movable one is pinned. */
loch_status lochi_buffer_locate(const loch_buffer *buffer, size_t offset, size_t bytes, char **out);

/* Around the queueing of work on `stream` (NULL: the default one of the buffer's device): the buffer has an address. Nothing for one that does not
 * move. `unpin` cannot fail for want of memory. */
loch_status lochi_buffer_hold(loch_buffer *buffer, loch_stream *stream);
loch_status lochi_buffer_let_go(loch_buffer *buffer, loch_stream *stream);

/* The stream to hold one side of a copy for. A copy without a stream runs on the default one of either side, which is then behind the moves
 * of both. */
loch_stream *lochi_buffer_choose_stream(const loch_buffer *buffer, const loch_buffer *other, loch_stream *stream);

/* What `then` does comes behind what is queued on `first`. */
loch_status lochi_buffer_order(loch_stream *first, loch_stream *then);

/* What a call with clean-up comes to. */
static inline loch_status lochi_first_failure(loch_status status, loch_status other)
{
    return status != LOCH_OK ? status : other;
}

/* Copies and fills: E_INVALID for memory that must not be written. */
loch_status lochi_buffer_check_writable(const loch_buffer *buffer);

/* A copy that failed may have been queued in part, or wholly without its order, on the stream (may be NULL) or a default one
 * of either side: keeps both. The error record stays (buffer_contents.c). */
void lochi_buffer_keep_after_failure(loch_buffer *to, loch_buffer *from, loch_stream *stream);

/* --- for pools of buffers --- */

/* Changes what a whole says that it has, within its capacity: nothing is reallocated. */
loch_status lochi_buffer_set_bytes(loch_buffer *buffer, size_t bytes);
size_t lochi_buffer_get_capacity(const loch_buffer *buffer);

/* Whether the caller's reference is the only one. */
bool lochi_buffer_is_sole(const loch_buffer *buffer);

static inline void lochi_buffer_set_mark(loch_buffer *buffer, uint64_t mark)
{
    buffer->mark = mark;
}

static inline uint64_t lochi_buffer_get_mark(const loch_buffer *buffer)
{
    return buffer->mark;
}

/* Whether functions were added that run at its end. */
bool lochi_buffer_has_deleters(loch_buffer *whole);

/* --- uses (buffer_uses.c) --- */

/* Adds a function to a whole. It becomes the whole's. */
void lochi_buffer_link_deleter(loch_buffer *whole, lochi_deleter *deleter);

/* Whether work that the allocator does not know of still uses a whole; drops marks that have passed. */
bool lochi_buffer_is_used(loch_buffer *whole);

/* The last reference on a whole has gone: true, and the whole is on the list of those that wait, when such work still uses
 * it. */
bool lochi_buffer_keep_if_used(loch_buffer *whole);

/* Gives back what waited and need not wait any longer. One load when nothing waits. */
void lochi_buffer_sweep(void);

/* Gives a whole's memory back and ends it; the reference on its owner, which may be NULL, passes to the caller
 * (buffer.c). */
loch_buffer *lochi_buffer_end(loch_buffer *whole);

#endif
