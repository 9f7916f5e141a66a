/* SPDX-License-Identifier: MIT */
/* Segments that come from another allocator (loch_pool_options.source). */
#ifndef LOCHI_POOL_SOURCE_H
#define LOCHI_POOL_SOURCE_H

#include "memory/pool/supply/segment.h"

/* Gets a segment from the source of a pool. Call without locks. `flags` are those of the request to the source. Pass
 * the result to lochi_pool_enter_fetched or to lochi_pool_refund_segment. */
loch_status lochi_pool_fetch_segment(lochi_pool *pool, const pool_segment_size *size, loch_stream *stream,
                                     uint32_t flags, pool_handle **out);
/* Tells whether the calling thread is fetching a segment for a pool. */
bool lochi_pool_is_fetching(const lochi_pool *pool);
/* Tells whether the calling thread is fetching a segment that a request can do without: one that is larger than needed,
 * or one that it gave back in vain. No other pool gives memory back for that. */
bool lochi_pool_is_modest(void);
/* Makes the memory of a segment free in the order of a stream. Both locks are held. E_LIMIT: another thread has reached
 * the limit meanwhile. */
loch_status lochi_pool_enter_fetched(lochi_pool *pool, pool_handle *segment, loch_stream *stream);
/* Gives a segment back to the source that was not entered. Call without locks. */
void lochi_pool_refund_segment(lochi_pool *pool, pool_handle *segment);

/* Takes the segments that go back to their source off the pool. The pool's lock is held. */
static inline pool_handle *lochi_pool_take_returned(lochi_pool *pool)
{
    pool_handle *all = pool->source.returned;
    pool->source.returned = NULL;
    return all;
}

/* Gives segments back to their sources. Call without locks. NULL does nothing. */
void lochi_pool_give_returned(pool_handle *segments);

#endif
