/* SPDX-License-Identifier: MIT */
/* Protects frozen blocks from writes by the host. pool.h declares the functions for other rooms. */
#ifndef LOCHI_POOL_PROTECT_H
#define LOCHI_POOL_PROTECT_H

#include "memory/pool/state/state.h"

/* Unfreezes a block, so that it may be written. On failure nothing changes. */
loch_status lochi_pool_thaw(lochi_pool *pool, pool_block *block);
/* Protects the blocks frozen by the last freeze. */
loch_status lochi_pool_protect_new(lochi_pool *pool);
/* Protects blocks again that got new memory. */
void lochi_pool_protect_again(lochi_pool *pool);
/* Returns the bytes that are protected. */
size_t lochi_pool_count_protected(const lochi_pool *pool);

#endif
