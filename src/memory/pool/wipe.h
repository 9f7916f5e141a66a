/* SPDX-License-Identifier: MIT */
/* LOCH_POOL_WIPE_FREED. In pools without that, each function does nothing and reports success. */
#ifndef LOCHI_POOL_WIPE_H
#define LOCHI_POOL_WIPE_H

#include "memory/pool/state.h"

/* Fills memory that is being freed with zeros, in the order of its lane. The status says why that cannot be done now; memory of
 * a capture is left for its release. */
loch_status lochi_pool_wipe(lochi_pool *pool, pool_lane *lane, uintptr_t start, size_t bytes);
/* Fills a block that counts as used. Returns false when that fails: the block is kept, and tried again. */
bool lochi_pool_wipe_block(lochi_pool *pool, pool_block *block);
/* Fills a small block. Returns false when that fails: the block is kept, and tried again. */
bool lochi_pool_wipe_word(lochi_pool *pool, pool_slab *slab, pool_word *word);
/* Tries again what could not be wiped; says whether anything became free. */
bool lochi_pool_wipe_again(lochi_pool *pool);
/* Fills what is free of a capture's lanes, before they are released. Threads keep nothing of it. */
loch_status lochi_pool_wipe_capture(lochi_pool *pool, uint64_t capture);

#endif
