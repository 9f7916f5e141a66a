/* SPDX-License-Identifier: MIT */
/* Blocks that further streams use. */
#ifndef LOCHI_POOL_USES_H
#define LOCHI_POOL_USES_H

#include "memory/pool/state/state.h"

/* Notes a use on a further stream. E_HOST_MEMORY. */
loch_status lochi_pool_note_use(lochi_pool *pool, uintptr_t address, pool_lane *lane);
/* Removes all notes on a block. No further stream may use it any more. */
void lochi_pool_forget_uses(lochi_pool *pool, uintptr_t address);
/* Makes a freed block wait for the streams that use it. `word` is that of a small block, or NULL. */
void lochi_pool_wait_for_uses(lochi_pool *pool, uintptr_t address, pool_block *block, pool_word *word);
/* Frees waiting blocks whose events have passed. Returns whether there was one. */
bool lochi_pool_collect(lochi_pool *pool);
/* Frees the oldest block of `lane` that waits for other streams, ordered after waits on the device. Returns false if
 * no block waits. */
bool lochi_pool_collect_behind_wait(lochi_pool *pool, pool_lane *lane);
/* Frees the list of waiting blocks, in a pool that ends. */
void lochi_pool_close_uses(lochi_pool *pool);

#endif
