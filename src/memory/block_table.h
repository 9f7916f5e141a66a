/* SPDX-License-Identifier: MIT */
/* A table of live blocks, each with a record of its own (held.h). The direct allocator and the red-zone wrapper use
 * it.
 *
 * Blocks are in an ordered map under one lock, and in a ledger, which counts them and remembers freed addresses. A
 * free first marks its block as going, so that no other thread frees the block while this thread waits for streams
 * without the lock. A block counts as live until it is taken out. A thread that reads a block without the lock and
 * does not free it pins the block; a free waits until the pin is dropped. */
#ifndef LOCHI_BLOCK_TABLE_H
#define LOCHI_BLOCK_TABLE_H

#include "base/fork.h"
#include "base/lock.h"
#include "memory/held.h"
#include "memory/ledger/ledger.h"

typedef struct lochi_block_table {
    lochi_lock lock; /* LOCHI_RANK_MEMORY; while it is held, only the ledger is called */
    lochi_tree live;
    lochi_ledger *ledger;
    lochi_fork_item in_forks;
} lochi_block_table;

/* Sets up an empty table. Call lochi_block_table_fini at the end, also after a failure. */
loch_status lochi_block_table_init(lochi_block_table *table);

/* Destroys a table and the records of all blocks in it. */
void lochi_block_table_fini(lochi_block_table *table);

/* Adds a block and gives it an id. E_HOST_MEMORY; E_DRIVER: a live block has this address already. */
loch_status lochi_block_table_add(lochi_block_table *table, lochi_held *held);

/* Marks the block at `address` as going. Afterwards either cancel the free or take the block out. E_DOUBLE_FREE,
 * E_INTERIOR, E_FOREIGN; E_INVALID: `bytes` is neither 0 nor the requested size. */
loch_status lochi_block_table_begin_free(lochi_block_table *table, const void *address, size_t bytes, lochi_held **out);

/* Undoes lochi_block_table_begin_free. */
void lochi_block_table_cancel_free(lochi_block_table *table, lochi_held *held);

/* Takes out a block that is marked as going. Lock held. */
void lochi_block_table_take(lochi_block_table *table, lochi_held *held);

/* Puts back a block that was taken out and could not be freed. Lock held. */
void lochi_block_table_put_back(lochi_block_table *table, lochi_held *held);

/* Pins the first block at or above `key` that is not going, and returns it; NULL after the last one. A fork drops
 * all pins in the child. */
lochi_held *lochi_block_table_pin(lochi_block_table *table, uintptr_t key);

/* Undoes lochi_block_table_pin. */
void lochi_block_table_unpin(lochi_block_table *table, lochi_held *held);

/* Describes the block at `address`. Errors as for lochi_block_table_begin_free. */
loch_status lochi_block_table_find(lochi_block_table *table, const void *address, loch_block *out);

/* Calls `visitor` for each live block, without the lock. Stops at the first status that is not LOCH_OK, and returns
 * that status. */
loch_status lochi_block_table_walk(lochi_block_table *table, loch_block_visitor *visitor, void *user);

/* Records a further stream that uses a block. E_HOST_MEMORY; errors of the address as for
 * lochi_block_table_begin_free. */
loch_status lochi_block_table_record_use(lochi_block_table *table, const void *address, loch_stream *stream);

#endif
