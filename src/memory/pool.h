/* SPDX-License-Identifier: MIT */
/* The pool as the rest of src/memory sees it: the ways in and out without a lock. */
#ifndef LOCHI_POOL_H
#define LOCHI_POOL_H

#include "memory/allocator.h"
#include <loch/pool.h>

typedef struct lochi_pool lochi_pool;

/* A block from what the calling thread keeps; NULL when it takes the long way. The request is of full size, not for 0
 * bytes, and wants nothing but bytes, a stream, and an alignment that is a power of two. */
void *lochi_pool_alloc_quickly(lochi_pool *pool, const loch_request *request);

/* Takes a block back into what the calling thread keeps; false when it takes the long way: nothing has happened then. */
bool lochi_pool_free_quickly(lochi_pool *pool, void *address);

/* Sends everybody the long way while the count is not 0; returns when nobody is on the short one any more. */
void lochi_pool_close_gate(lochi_pool *pool);
void lochi_pool_open_gate(lochi_pool *pool);

#endif
