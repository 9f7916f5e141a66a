/* SPDX-License-Identifier: MIT */
/* Sleeping handles and the blocks on them. */
#ifndef LOCHI_POOL_REST_H
#define LOCHI_POOL_REST_H

#include "memory/pool/state.h"

/* Returns the bytes of a block that is handed out or waits for streams; 0 for all other blocks. */
size_t lochi_rest_count_live(const pool_block *block);
/* Changes the handles under a live block from state `from` to state `to`. */
void lochi_rest_set(const lochi_pool *pool, const pool_block *block, size_t bytes, pool_rest from, pool_rest to);
/* Stocks records for cutting blocks at both ends of `handles` handles. E_HOST_MEMORY. */
loch_status lochi_rest_stock(lochi_pool *pool, size_t handles);

/* A part of a live block that lies in one handle. */
typedef struct pool_part {
    pool_handle *handle;
    uintptr_t start;
    size_t bytes;
} pool_part;

/* Finds the first part at or behind *at whose handle has the state `rest`, and moves *at behind it. Returns false at
 * the end. */
bool lochi_rest_next_part(const lochi_pool *pool, const pool_block *block, pool_rest rest, uintptr_t *at,
                          pool_part *out);

/* Tells checking tools which memory the host may touch, after copies that covered whole handles. */
void lochi_rest_paint(const lochi_pool *pool);
/* Waits for copies that were queued before a failure: they may still write to memory that is about to be unmapped. */
void lochi_rest_settle(const lochi_pool *pool);

#endif
