/* SPDX-License-Identifier: MIT */
/* Growable blocks. */
#ifndef LOCHI_POOL_GROWABLE_H
#define LOCHI_POOL_GROWABLE_H

#include "memory/pool/state/state.h"

/* A growable block: its sizes, and how its request was to be retried. */
typedef struct lochi_growth {
    size_t bytes, max_bytes;
    size_t committed; /* bytes that have memory */
    uint64_t timeout_ns;
    uint32_t flags;
} lochi_growth;

/* Makes a growable block for a complete request. */
loch_status lochi_pool_make_growable(lochi_pool *pool, const loch_request *request, void **out);
/* Changes the size of a growable block to `bytes`. */
loch_status lochi_pool_resize_block(lochi_pool *pool, pool_block *block, size_t bytes);
/* Frees a growable block: its memory becomes free in the order of its stream, its other addresses become unmapped. */
void lochi_pool_free_growable(lochi_pool *pool, pool_block *block);

#endif
