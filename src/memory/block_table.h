/* SPDX-License-Identifier: MIT */
/* Live blocks with more to remember than a ledger's entry holds: where the memory around them starts, and which streams
 * use them. For allocators that look after each block one by one (direct, guard).
 *
 * Blocks are in an ordered map under one lock, and in a ledger, which counts them and remembers freed addresses. A free
 * first marks its block as going, so that nobody else frees it while the streams are waited for, outside the lock; up
 * to the moment when it is taken out it counts as live. Who looks at a block outside the lock without freeing it pins
 * it: a free waits for that. */
#ifndef LOCHI_BLOCK_TABLE_H
#define LOCHI_BLOCK_TABLE_H

#include "base/fork.h"
#include "base/lock.h"
#include "base/tree.h"
#include "memory/ledger/ledger.h"

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

typedef struct lochi_block_table {
    lochi_lock lock; /* LOCHI_RANK_MEMORY: nothing but the ledger is called under it */
    lochi_tree live;
    lochi_ledger *ledger;
    lochi_fork_item in_forks;
} lochi_block_table;

/* Streams that were waited for: each is waited for once, as long as there is room to note it. */
#define LOCHI_WAITS_MAX 8
typedef struct lochi_waits {
    loch_device *device;
    const loch_stream *done[LOCHI_WAITS_MAX];
    unsigned count;
    bool is_device_done;
} lochi_waits;

static inline void *lochi_held_address(const lochi_held *held)
{
    return (void *)held->node.key;
}

loch_status lochi_block_table_init(lochi_block_table *table);
void lochi_block_table_fini(lochi_block_table *table);

/* A block that is not in a table yet; NULL when there is no host memory. The address and its surroundings are the
 * caller's to set. */
lochi_held *lochi_held_create(const loch_request *request);
void lochi_held_destroy(lochi_held *held);

/* Destroys all blocks of a map, whatever became of their memory. */
void lochi_held_forget_all(lochi_tree *tree);

/* Enters a block and gives it an id. E_HOST_MEMORY; E_DRIVER when a live block is there already. */
loch_status lochi_block_table_add(lochi_block_table *table, lochi_held *held);

/* Marks the block at `address` as going. E_DOUBLE_FREE, E_INTERIOR, E_FOREIGN; E_INVALID when `bytes` is neither 0 nor
 * its requested size. Then either cancel, or take. */
loch_status lochi_block_table_begin_free(lochi_block_table *table, const void *address, size_t bytes, lochi_held **out);
void lochi_block_table_cancel_free(lochi_block_table *table, lochi_held *held);

/* Takes a block out that is going. The lock is held. */
void lochi_block_table_take(lochi_block_table *table, lochi_held *held);

/* Puts a block back that was taken out and could not be freed after all. The lock is held. */
void lochi_block_table_put_back(lochi_block_table *table, lochi_held *held);

/* Pins the first block at or above `key` that is not going; NULL past the last. In the child of a fork no block is pinned. */
lochi_held *lochi_block_table_pin(lochi_block_table *table, uintptr_t key);
void lochi_block_table_unpin(lochi_block_table *table, lochi_held *held);

loch_status lochi_block_table_find(lochi_block_table *table, const void *address, loch_block *out);
loch_status lochi_block_table_walk(lochi_block_table *table, loch_block_visitor *visitor, void *user);

/* Remembers a further stream. E_HOST_MEMORY; errors of an address as for a free. */
loch_status lochi_block_table_record_use(lochi_block_table *table, const void *address, loch_stream *stream);

/* Waits on the host for a stream, or for its whole device when its owner has destroyed it. A device that is lost runs
 * nothing any more, so that is no failure. */
loch_status lochi_waits_for(lochi_waits *waits, loch_stream *stream);

/* Waits for all streams of a block that is going or pinned. */
loch_status lochi_waits_for_block(lochi_waits *waits, const lochi_held *held);

/* Enters the stream to work on a block with, once its streams have been waited for: `given`, the one of the allocation,
 * or the default stream when that one has been destroyed. To be left with lochi_stream_leave. */
loch_stream *lochi_held_enter_stream(const lochi_held *held, loch_stream *given, uint32_t *mark);

#endif
