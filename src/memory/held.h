/* SPDX-License-Identifier: MIT */
/* A live block with more to remember than a ledger's entry holds: where the memory around it starts, and which streams use it. */
#ifndef LOCHI_HELD_H
#define LOCHI_HELD_H

#include "base/tree.h"
#include <loch/allocator.h>
#include <stdbool.h>

/* One block. Once it is in a table its members belong to the lock, except that who has marked it as going, or pinned
 * it, may read them. */
typedef struct lochi_held {
    lochi_tree_node node; /* key: the address that the user has */
    char *base;           /* what was taken for it: [base, base + taken) holds the block and the zones around it */
    size_t taken, requested;
    loch_stream *stream;   /* of the allocation; this and the other streams are retained */
    loch_stream **further; /* that were recorded */
    size_t further_count;
    loch_stream *freed_on; /* NULL for the stream of the allocation */
    uint64_t id, time_ns;
    loch_tag tag;
    unsigned pins;
    bool is_going;
    bool is_poisoned; /* it was filled when it was freed */
} lochi_held;

/* Streams that were waited for: each is waited for once, as long as there is room to note it. */
#define LOCHI_WAITS_MAX 8
typedef struct lochi_waits {
    loch_device *device;
    const loch_stream *done[LOCHI_WAITS_MAX];
    unsigned count;
    bool is_device_done;
} lochi_waits;

/* Returns the address that the user has. */
static inline void *lochi_held_address(const lochi_held *held)
{
    return (void *)held->node.key;
}

/* Returns the block of a node of a map; NULL for NULL. */
static inline lochi_held *lochi_held_of(lochi_tree_node *node)
{
    return node ? LOCHI_CONTAINER(node, lochi_held, node) : NULL;
}

/* Makes a block that is not in a table yet; NULL when there is no host memory. The address and its surroundings are the
 * caller's to set. */
lochi_held *lochi_held_create(const loch_request *request);

/* Ends a block; NULL does nothing. */
void lochi_held_destroy(lochi_held *held);

/* Destroys all blocks of a map, whatever became of their memory. */
void lochi_held_forget_all(lochi_tree *tree);

/* Writes a block as one of the public interface. */
void lochi_held_describe(const lochi_held *held, loch_block *out);

/* Waits on the host for a stream, or for its whole device when its owner has destroyed it. A device that is lost runs
 * nothing any more, so that is no failure. */
loch_status lochi_waits_for(lochi_waits *waits, loch_stream *stream);

/* Waits for all streams of a block that is going or pinned. */
loch_status lochi_waits_for_block(lochi_waits *waits, const lochi_held *held);

/* Enters the stream to work on a block with, once its streams have been waited for: `given`, the one of the allocation,
 * or the default stream when that one has been destroyed. To be left with lochi_stream_leave. */
loch_stream *lochi_held_enter_stream(const lochi_held *held, loch_stream *given, uint32_t *mark);

#endif
