/* SPDX-License-Identifier: MIT */
/* Handles that sleep, or are about to, and the blocks on them. */
#ifndef LOCHI_POOL_REST_H
#define LOCHI_POOL_REST_H

#include "memory/pool/state.h"

/* Returns the bytes of a block that somebody has, or that waits for streams; 0 for all others. */
size_t lochi_rest_count_live(const pool_block *block);
/* Gives the handles under a live block that are in one state another. */
void lochi_rest_set(const lochi_pool *pool, const pool_block *block, size_t bytes, pool_rest from, pool_rest to);
/* Stocks records for cutting blocks at both ends of `handles` handles. E_HOST_MEMORY. */
loch_status lochi_rest_stock(lochi_pool *pool, size_t handles);

/* A part of a live block that lies in one handle. */
typedef struct pool_part {
    pool_handle *handle;
    uintptr_t start;
    size_t bytes;
} pool_part;

/* Finds the first part in a handle of a state at or behind *at, which goes behind it; false when there is none. */
bool lochi_rest_next_part(const lochi_pool *pool, const pool_block *block, pool_rest rest, uintptr_t *at,
                          pool_part *out);

/* Tells tools what the host may touch, while nothing is copied as a whole. */
void lochi_rest_paint(const lochi_pool *pool);
/* Waits for copies that were queued before a failure: they may write to memory that is about to go. */
void lochi_rest_settle(const lochi_pool *pool);

#endif
