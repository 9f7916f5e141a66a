/* SPDX-License-Identifier: MIT */
/* Blocks that may be remapped to another address. A buffer keeps a lochi_movable in place of an address. */
#ifndef LOCHI_MOVABLE_H
#define LOCHI_MOVABLE_H

#include <loch/allocator.h>
#include <loch/raw.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Guarded by the pool's lock, except where a member says otherwise. The owner must not copy or move this struct
 * while the block lives. */
typedef struct lochi_movable {
    void *address;          /* address of the block; the owner may read it while the block is pinned */
    atomic_uint pins;       /* number of pins; an owner that has a pin reads it relaxed, without the lock */
    uint64_t generation;    /* number of moves so far */
    uint64_t buffer;        /* id of the owner, for hooks; set by the owner */
    struct pool_lane *lane; /* lane of the last move; NULL: never moved, or the move has finished */
    uint64_t epoch;         /* epoch of `lane` that must finish before the contents are at `address` */
    const void *torn_from;  /* NULL, or source of a failed overlapping move; holds the bytes not at `address` */
    size_t torn_done;       /* bytes that are already at `address` */
} lochi_movable;

/* Makes a new block of a pool movable. No other code has the address yet. Small blocks are moved by a freeze only.
 * Blocks with an alignment above that of all large blocks are never moved. E_UNSUPPORTED: `allocator` is not a pool
 * itself; wrappers identify blocks by address. */
loch_status lochi_movable_open(loch_allocator *allocator, void *address, size_t alignment, lochi_movable *movable);

/* Pins the block and returns its address, which is valid until unpin. Work on `stream` (NULL: the default stream) is
 * ordered after the last move. E_INVALID: the stream belongs to another device. */
loch_status lochi_movable_pin(loch_allocator *allocator, lochi_movable *movable, loch_stream *stream, void **out);

/* Undoes one pin. Work queued so far on `stream` used the block. E_INVALID: the stream belongs to another device. */
loch_status lochi_movable_unpin(loch_allocator *allocator, lochi_movable *movable, loch_stream *stream);

/* Returns whether the block is pinned now. */
static inline bool lochi_movable_is_pinned(const lochi_movable *movable)
{
    return atomic_load_explicit(&movable->pins, memory_order_relaxed) != 0;
}

/* Pins the block without stream order, for bookkeeping, and returns its address until drop. Needs no memory and does
 * not fail. */
void *lochi_movable_hold(loch_allocator *allocator, lochi_movable *movable);
void lochi_movable_drop(loch_allocator *allocator, lochi_movable *movable);

/* Makes the block an ordinary one again, at the address in `out`. Work on `stream` is ordered after the last move;
 * with NULL the call waits for that move. On failure the block stays movable. */
loch_status lochi_movable_close(loch_allocator *allocator, lochi_movable *movable, loch_stream *stream, void **out);

/* Detaches the owner from a block that could not be freed. The block has no owner afterwards. */
void lochi_movable_forget(loch_allocator *allocator, const lochi_movable *movable);

/* Returns the kind of memory of the allocator's blocks. */
loch_memory_kind lochi_movable_get_kind(const loch_allocator *allocator);

/* Returns whether the block is frozen and protected, so that the host must not write to it. */
bool lochi_movable_is_protected(loch_allocator *allocator, const lochi_movable *movable);

/* Returns how often the block has moved. */
uint64_t lochi_movable_count(loch_allocator *allocator, const lochi_movable *movable);

#endif
