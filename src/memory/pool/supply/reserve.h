/* SPDX-License-Identifier: MIT */
/* The addresses of a pool with virtual memory. Uses no other part of the pool. */
#ifndef LOCHI_POOL_RESERVE_H
#define LOCHI_POOL_RESERVE_H

#include "memory/pool/state/state.h"

/* Reserves addresses; all of them are unmapped. Does nothing in a pool of raw segments, or if the pool has addresses.
 * Goes outside the pool's lock for the driver call. */
loch_status lochi_pool_open_addresses(lochi_pool *pool);
/* Asks the system for large pages under the table of pages if the pool has many blocks, for twice as many addresses as
 * it has memory. Called when memory was added. */
void lochi_pool_widen_table(lochi_pool *pool);
/* Gives addresses and cells back. Nothing may be mapped. */
void lochi_pool_close_addresses(lochi_pool *pool);

#endif
