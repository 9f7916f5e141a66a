/* SPDX-License-Identifier: MIT */
/* The record of a live block that needs more than a ledger entry holds: the memory around the block, and the streams
 * that use it. */
#ifndef LOCHI_HELD_H
#define LOCHI_HELD_H

#include "base/tree.h"
#include <loch/allocator.h>
#include <stdbool.h>

/* One block. Once it is in a table, the table's lock guards its members. The thread that marked the block as going,
 * or pinned it, may read them without the lock. */
typedef struct lochi_held {
    lochi_tree_node node; /* key: the address of the block */
    char *base;           /* start of the memory: [base, base + taken) holds the block and its zones */
    size_t taken, requested;
    loch_stream *stream;  /* stream of the allocation; all streams here are retained */
    loch_stream **others; /* streams recorded later */
    size_t other_count;
    loch_stream *freed_on; /* NULL: freed on the stream of the allocation */
    uint64_t id, time_ns;
    loch_tag tag;
    unsigned pins;
    bool is_going;
    bool is_poisoned; /* filled with poison when it was freed */
} lochi_held;

/* Streams that were waited for. Each stream is waited for once, as long as there is room in `done`. */
#define LOCHI_WAITS_MAX 8
typedef struct lochi_waits {
    loch_device *device;
    const loch_stream *done[LOCHI_WAITS_MAX];
    unsigned count;
    bool is_device_done;
} lochi_waits;

/* Returns the address of the block. */
static inline void *lochi_held_address(const lochi_held *held)
{
    return (void *)held->node.key;
}

/* Returns the block of a map node; NULL for NULL. */
static inline lochi_held *lochi_held_of(lochi_tree_node *node)
{
    return node ? LOCHI_CONTAINER(node, lochi_held, node) : NULL;
}

/* Creates the record of a block that is not in a table yet; NULL if there is no host memory. The caller sets the
 * address, `base` and `taken`. */
lochi_held *lochi_held_create(const loch_request *request);

/* Destroys a record; NULL does nothing. The memory of the block is not touched. */
void lochi_held_destroy(lochi_held *held);

/* Destroys all records of a map. The memory of the blocks is not touched. */
void lochi_held_forget_all(lochi_tree *tree);

/* Writes a block as a loch_block of the public interface. */
void lochi_held_describe(const lochi_held *held, loch_block *out);

/* Waits on the host for a stream, or for the whole device if the stream was destroyed. Succeeds on a lost device,
 * where no work runs any more. */
loch_status lochi_waits_for(lochi_waits *waits, loch_stream *stream);

/* Waits for all streams of a block that is marked as going or pinned. */
loch_status lochi_waits_for_block(lochi_waits *waits, const lochi_held *held);

/* Enters the stream for work on a block whose streams have been waited for: `given`, or the stream of the
 * allocation; the default stream if that one was destroyed. Leave it with lochi_stream_leave. */
loch_stream *lochi_held_enter_stream(const lochi_held *held, loch_stream *given, uint32_t *mark);

#endif
