/* SPDX-License-Identifier: MIT */
/* Blocks that may move, for their owners in the layers above: what a buffer keeps in place of an address. */
#ifndef LOCHI_MOVABLE_H
#define LOCHI_MOVABLE_H

#include <loch/allocator.h>
#include <loch/raw.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Under the pool's lock, but for what is said. The owner keeps it in place while the block lives. */
typedef struct lochi_movable {
    void *address;          /* where the block is; the owner may read it while it has it pinned */
    atomic_uint pins;       /* how often it is pinned; relaxed where the owner, who has one, asks without the lock */
    uint64_t generation;    /* how often it has moved */
    uint64_t buffer;        /* id of the owner, for hooks; set by it */
    struct pool_lane *lane; /* that moved it last; NULL: none, or it has passed */
    uint64_t epoch;         /* of that lane, which has to pass before the contents are there */
    const void
        *torn_from;   /* NULL; or a move onto itself has failed half way: what is not at `address` is still there */
    size_t torn_done; /* bytes that are at `address` */
} lochi_movable;

/* Makes a block that was just handed out by a pool, and that nobody knows yet, one that may move. Small blocks are moved by a freeze
 * alone; those with an alignment beyond that of all large blocks stay where they are. E_UNSUPPORTED when `allocator` is no pool itself: what stands around one knows blocks by
 * their addresses. */
loch_status lochi_movable_open(loch_allocator *allocator, void *address, size_t alignment, lochi_movable *movable);

/* The address until unpin, for work on `stream` (NULL: the default stream), which is ordered behind the last move. E_INVALID for a
 * stream of another device, also from unpin. */
loch_status lochi_movable_pin(loch_allocator *allocator, lochi_movable *movable, loch_stream *stream, void **out);

/* Undoes one pin; work queued so far on `stream` used the block. */
loch_status lochi_movable_unpin(loch_allocator *allocator, lochi_movable *movable, loch_stream *stream);

/* Whether somebody has it pinned now. */
static inline bool lochi_movable_is_pinned(const lochi_movable *movable)
{
    return atomic_load_explicit(&movable->pins, memory_order_relaxed) != 0;
}

/* The address until drop, without order: for bookkeeping. They need no memory and do not fail. */
void *lochi_movable_hold(loch_allocator *allocator, lochi_movable *movable);
void lochi_movable_drop(loch_allocator *allocator, lochi_movable *movable);

/* The block is one like any other again, at the address in `out`, and its contents are there for work on `stream`, which is ordered behind
 * the last move; NULL: for anybody, because the call waits for it. On failure it may move as before. */
loch_status lochi_movable_close(loch_allocator *allocator, lochi_movable *movable, loch_stream *stream, void **out);

/* The owner ends, and the block could not be freed: it is nobody's. */
void lochi_movable_forget(loch_allocator *allocator, const lochi_movable *movable);

/* The kind of its memory, wherever it is. */
loch_memory_kind lochi_movable_get_kind(const loch_allocator *allocator);

/* Whether the host must not write to it: it is frozen and protected. */
bool lochi_movable_is_protected(loch_allocator *allocator, const lochi_movable *movable);

/* How often it has moved. */
uint64_t lochi_movable_count(loch_allocator *allocator, const lochi_movable *movable);

#endif
