/* SPDX-License-Identifier: MIT */
/* Blocks that further streams use. */
#ifndef LOCHI_POOL_USES_H
#define LOCHI_POOL_USES_H

#include "memory/pool/state.h"

/* Notes a use on a further stream. E_HOST_MEMORY. */
loch_status lochi_pool_note_use(lochi_pool *pool, uintptr_t address, pool_lane *lane);
/* Drops all notes on a block. Nobody uses it on further streams. */
void lochi_pool_forget_uses(lochi_pool *pool, uintptr_t address);
/* Has a freed block wait for the streams that use it. `word` for a small one. */
void lochi_pool_wait_for_uses(lochi_pool *pool, uintptr_t address, pool_block *block, pool_word *word);
/* Frees blocks that wait and whose events have passed; says whether there was one. */
bool lochi_pool_collect(lochi_pool *pool);
/* Frees the oldest block of `lane` that waits for others, behind waits on the device; false when there is none. */
bool lochi_pool_collect_behind_wait(lochi_pool *pool, pool_lane *lane);
/* Frees the list of blocks that wait, in a pool that ends. */
void lochi_pool_close_uses(lochi_pool *pool);

#endif
