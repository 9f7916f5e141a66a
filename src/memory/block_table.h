/* SPDX-License-Identifier: MIT */
/* The table of live blocks that are looked after one by one. The direct allocator and the guard use it.
 *
 * Blocks are in an ordered map under one lock, and in a ledger, which counts them and remembers freed addresses. A free first
 * marks its block as going, so that nobody else frees it while the streams are waited for, outside the lock; up to the moment
 * when it is taken out it counts as live. Who looks at a block outside the lock without freeing it pins it: a free waits for
 * that. */
#ifndef LOCHI_BLOCK_TABLE_H
#define LOCHI_BLOCK_TABLE_H

#include "base/fork.h"
#include "base/lock.h"
#include "memory/held.h"
#include "memory/ledger/ledger.h"

typedef struct lochi_block_table {
    lochi_lock lock; /* LOCHI_RANK_MEMORY: nothing but the ledger is called under it */
    lochi_tree live;
    lochi_ledger *ledger;
    lochi_fork_item in_forks;
} lochi_block_table;

/* Makes an empty table; lochi_block_table_fini ends it, also when this has failed. */
loch_status lochi_block_table_init(lochi_block_table *table);

/* Ends a table and all blocks that are in it. */
void lochi_block_table_fini(lochi_block_table *table);

/* Enters a block and gives it an id. E_HOST_MEMORY; E_DRIVER when a live block is there already. */
loch_status lochi_block_table_add(lochi_block_table *table, lochi_held *held);

/* Marks the block at `address` as going. E_DOUBLE_FREE, E_INTERIOR, E_FOREIGN; E_INVALID when `bytes` is neither 0 nor
 * its requested size. Then either cancel, or take. */
loch_status lochi_block_table_begin_free(lochi_block_table *table, const void *address, size_t bytes, lochi_held **out);

/* Undoes lochi_block_table_begin_free. */
void lochi_block_table_cancel_free(lochi_block_table *table, lochi_held *held);

/* Takes a block out that is going. The lock is held. */
void lochi_block_table_take(lochi_block_table *table, lochi_held *held);

/* Puts a block back that was taken out and could not be freed after all. The lock is held. */
void lochi_block_table_put_back(lochi_block_table *table, lochi_held *held);

/* Pins the first block at or above `key` that is not going; NULL past the last. In the child of a fork no block is pinned. */
lochi_held *lochi_block_table_pin(lochi_block_table *table, uintptr_t key);

/* Undoes lochi_block_table_pin. */
void lochi_block_table_unpin(lochi_block_table *table, lochi_held *held);

/* Describes the block at `address`; errors as for a free. */
loch_status lochi_block_table_find(lochi_block_table *table, const void *address, loch_block *out);

/* Calls `visitor` for each live block, without the lock; ends with what it returns when that is not LOCH_OK. */
loch_status lochi_block_table_walk(lochi_block_table *table, loch_block_visitor *visitor, void *user);

/* Remembers a further stream. E_HOST_MEMORY; errors of an address as for a free. */
loch_status lochi_block_table_record_use(lochi_block_table *table, const void *address, loch_stream *stream);

#endif
