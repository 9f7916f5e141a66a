/* SPDX-License-Identifier: MIT */
/* LOCH_POOL_WIPE_FREED. In pools without this option each function does nothing and succeeds. */
#ifndef LOCHI_POOL_WIPE_H
#define LOCHI_POOL_WIPE_H

#include "memory/pool/state/state.h"

/* Fills memory that is being freed with zeros, in the order of its lane. Skips memory of a capture, which is wiped
 * when the capture is released. The status says why the fill is not possible now. */
loch_status lochi_pool_wipe(lochi_pool *pool, pool_lane *lane, uintptr_t start, size_t bytes);
/* Fills a block that counts as used. On failure returns false, keeps the block, and tries again later. */
bool lochi_pool_wipe_block(lochi_pool *pool, pool_block *block);
/* Fills a small block. On failure returns false, keeps the block, and tries again later. */
bool lochi_pool_wipe_word(lochi_pool *pool, pool_slab *slab, pool_word *word);
/* Tries again to wipe waiting memory. Returns whether anything became free. */
bool lochi_pool_wipe_again(lochi_pool *pool);
/* Fills the free memory of a capture's lanes before they are released; 0 for all captures. Threads must not cache any
 * of it. */
loch_status lochi_pool_wipe_capture(lochi_pool *pool, uint64_t capture);

#endif
