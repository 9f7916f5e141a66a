/* SPDX-License-Identifier: MIT */
/* Large blocks in use. */
#ifndef LOCHI_POOL_BLOCK_H
#define LOCHI_POOL_BLOCK_H

#include "memory/pool/state.h"

/* Rounds a request up as the pool's options say. */
size_t lochi_pool_round_request(const lochi_pool *pool, size_t bytes);
/* Returns the size in bytes of a large block for a request of `bytes`. */
size_t lochi_pool_round_large(const lochi_pool *pool, size_t bytes);

/* Counts in a block that was cut for a request. Enters its first page, or all pages of a slab. On failure the block
 * is free again. */
loch_status lochi_pool_use_block(lochi_pool *pool, pool_block *block, size_t paged_bytes);
/* Counts a block out of the figures. */
void lochi_pool_uncount(lochi_pool *pool, const pool_block *block);
/* Frees a block that no stream uses any more. */
void lochi_pool_put_block(lochi_pool *pool, pool_block *block);
/* Counts a block of a tag in (1) or out (-1). Tag 0 counts nothing. */
void lochi_pool_count_tag(lochi_pool *pool, loch_tag tag, size_t requested, int sign);

#endif
