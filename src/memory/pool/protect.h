/* SPDX-License-Identifier: MIT */
/* Frozen blocks that the host must not write to. The door (pool.h) declares what other rooms ask. */
#ifndef LOCHI_POOL_PROTECT_H
#define LOCHI_POOL_PROTECT_H

#include "memory/pool/state.h"

/* Makes a frozen block one like any other, which may be written. On failure it is as it was. */
loch_status lochi_pool_thaw(lochi_pool *pool, pool_block *block);
/* Protects what the last freeze has frozen. */
loch_status lochi_pool_protect_new(lochi_pool *pool);
/* Protects again what has new memory under it. */
void lochi_pool_protect_again(lochi_pool *pool);
/* Counts the bytes that are protected. */
size_t lochi_pool_count_protected(const lochi_pool *pool);

#endif
