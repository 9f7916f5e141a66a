/* SPDX-License-Identifier: MIT */
/* Finds the live block at an address. */
#ifndef LOCHI_POOL_FIND_H
#define LOCHI_POOL_FIND_H

#include "memory/pool/state/state.h"

/* A live block. */
typedef struct pool_found {
    pool_block *block;
    pool_word *word; /* NULL for a large block */
    size_t requested, allocated;
    loch_tag tag;
} pool_found;

/* Finds the live block that starts at an address. E_DOUBLE_FREE, E_INTERIOR, E_FOREIGN. */
loch_status lochi_pool_find_live(lochi_pool *pool, const void *address, pool_found *out);
/* Marks a block that further streams use. */
void lochi_pool_set_uses(const pool_found *found);
/* Marks a block as the range of `child`; NULL removes the mark. A range cannot be freed or resized. Takes the lock. */
void lochi_pool_keep_range(lochi_pool *pool, const void *address, lochi_pool *child);

#endif
