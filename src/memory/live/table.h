/* SPDX-License-Identifier: MIT */
/* The table of live blocks by allocator and address, in shards with a lock each. */
#ifndef LOCHI_LIVE_TABLE_H
#define LOCHI_LIVE_TABLE_H

#include "memory/live/state.h"
#include <stdbool.h>

/* Makes the locks of the table. Called once, before any other function here. */
void lochi_live_table_open(void);

/* Adds a block, in place of one with its allocator and address. Without memory the block is not listed, and counted
 * (lochi_live_table_count_lost). */
void lochi_live_table_put(const lochi_live_block *block);
/* Takes a block out. Returns false if there is none. */
bool lochi_live_table_take(const loch_allocator *allocator, uintptr_t address, lochi_live_block *out);
bool lochi_live_table_find(const loch_allocator *allocator, uintptr_t address, lochi_live_block *out);

/* Returns the number of blocks, and of blocks that were not added. */
size_t lochi_live_table_count(void);
size_t lochi_live_table_count_lost(void);
/* Copies up to `max` blocks and returns their number. Other threads may change the table meanwhile. */
size_t lochi_live_table_copy(lochi_live_block *blocks, size_t max);

/* Removes all blocks. For the child of a fork; no other thread runs, and the locks are held already. */
void lochi_live_table_clear(void);

#endif
