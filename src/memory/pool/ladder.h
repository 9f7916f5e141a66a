/* SPDX-License-Identifier: MIT */
/* What is tried when a request does not fit. */
#ifndef LOCHI_POOL_LADDER_H
#define LOCHI_POOL_LADDER_H

#include "memory/pool/heap.h"

/* Finds a block for a request that did not fit: tries everything that needs no other pool. NULL with the status. */
pool_block *lochi_pool_climb(lochi_pool *pool, const pool_want *want, loch_status *status);
/* Tries only what is quick: up to new memory, without giving back or waiting on the host. NULL with the status. */
pool_block *lochi_pool_climb_some(lochi_pool *pool, const pool_want *want, loch_status *status);

#endif
