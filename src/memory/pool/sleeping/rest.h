/* SPDX-License-Identifier: MIT */
/* Sleeping handles and the blocks on them. */
#ifndef LOCHI_POOL_REST_H
#define LOCHI_POOL_REST_H

#include "memory/pool/state/state.h"

/* Returns the bytes of a block that is handed out or waits for streams; 0 for all other blocks. */
size_t lochi_rest_count_live(const pool_block *block);
/* Returns the bytes of a block that have memory again after a wake: those of live blocks, and free memory of captures,
 * which graphs use; 0 for all other blocks. */
size_t lochi_rest_count_kept(const pool_block *block);
/* Changes the handles under a live block from state `from` to state `to`. */
void lochi_rest_set(const lochi_pool *pool, const pool_block *block, size_t bytes, pool_rest from, pool_rest to);
/* Stocks records for cutting blocks at both ends of `handles` handles. E_HOST_MEMORY. */
loch_status lochi_rest_stock(lochi_pool *pool, size_t handles);

/* Stocks records as lochi_rest_stock does, and takes them out of reach of other threads, into a list. */
loch_status lochi_rest_set_aside(lochi_pool *pool, size_t handles, pool_block **out);
/* Gives back the records that lochi_rest_set_aside took. */
void lochi_rest_put_aside_back(lochi_pool *pool, pool_block *aside);
/* Makes the start of a dormant block free if its memory is awake. Memory that is asleep becomes unmapped if `is_gone`;
 * otherwise it stays dormant. Returns the block of that part; the rest is behind it and dormant. Uses one record. */
pool_block *lochi_rest_release(lochi_pool *pool, pool_block *block, bool is_gone);

/* A part of a block that lies in one handle. */
typedef struct pool_part {
    pool_handle *handle;
    uintptr_t start;
    size_t bytes;
} pool_part;

/* Finds the first part at or behind *at whose handle has the state `rest`, and moves *at behind it. Returns false
 * behind the first `bytes` of the block. */
bool lochi_rest_next_part(const lochi_pool *pool, const pool_block *block, size_t bytes, pool_rest rest, uintptr_t *at,
                          pool_part *out);

/* Tells whether a reservation begins at an address in a block. No copy reaches from one into the next. */
static inline bool lochi_rest_begins_range(const lochi_pool *pool, const pool_block *block, uintptr_t at)
{
    return at == pool->base || (block->is_annex && at == block->start);
}

/* Tells checking tools which memory the host may touch, after copies that covered whole handles. */
void lochi_rest_paint(const lochi_pool *pool);
/* Waits for copies that were queued before a failure: they may still write to memory that is about to be unmapped. */
void lochi_rest_settle(lochi_pool *pool);

#endif
