/* SPDX-License-Identifier: MIT */
/* Records of blocks. */
#ifndef LOCHI_POOL_RECORDS_H
#define LOCHI_POOL_RECORDS_H

#include "memory/pool/state/state.h"

/* Makes sure that `count` records, at most one batch, are available. Returns false without host memory. */
bool lochi_pool_stock_records(lochi_pool *pool, size_t count);

/* Takes a record. The caller has stocked it. */
static inline pool_block *lochi_pool_take_record(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    pool_block *block = pool->spare;
    pool->spare = block->list_next;
    block->flags = 0;
    block->tag = 0;
    lochi_pool_set_id(block, 0);
    lochi_pool_set_epoch(block, 0);
    return block; /* the second line is clean: its members are reset when the block stops to be special */
}

/* Gives a record back. */
static inline void lochi_pool_drop_record(lochi_pool *pool, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    block->list_next = pool->spare;
    pool->spare = block;
}

/* Frees all records of a pool that ends. */
void lochi_pool_close_records(lochi_pool *pool);

#endif
