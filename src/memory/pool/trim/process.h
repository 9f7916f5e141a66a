/* SPDX-License-Identifier: MIT */
/* The list of all pools of the process. Call these functions without a pool's lock. */
#ifndef LOCHI_POOL_PROCESS_H
#define LOCHI_POOL_PROCESS_H

#include "memory/pool/state/state.h"

/* Enters a pool in the list. */
void lochi_pool_join(lochi_pool *pool);
/* Takes a pool out of the list. */
void lochi_pool_leave(lochi_pool *pool);

typedef loch_status pool_visitor(lochi_pool *pool, void *user);
/* Calls a function for every pool of the process, with the lock of the list held. Stops at the first failure. */
loch_status lochi_pool_visit_all(pool_visitor *visit, void *user);

/* Asks the other pools of the device and kind to give back unused memory for a request of `bytes`, which failed with
 * `why`. Asks none if the pool's limits refuse the request anyway, if the device is not short, or if all of that memory
 * together were not enough. Returns the bytes given back. */
size_t lochi_pool_ask_siblings(lochi_pool *pool, size_t bytes, loch_status why);
/* Asks all pools below the topmost full pool to give back memory, to make room for `bytes` within the limits of the
 * family; none if all of that memory together were not enough. Asks `pool` itself only if `is_asked`. No pool gives
 * back memory below its minimum, except for itself and for pools below it. 0 bytes: to obey limits that were lowered.
 * Returns the bytes given back. */
size_t lochi_pool_ask_family(lochi_pool *pool, size_t bytes, bool is_asked);

#endif
