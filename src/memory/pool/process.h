/* SPDX-License-Identifier: MIT */
/* The pools of the process. Without a pool's lock. */
#ifndef LOCHI_POOL_PROCESS_H
#define LOCHI_POOL_PROCESS_H

#include "memory/pool/state.h"

/* Enters a pool among those of the process. */
void lochi_pool_join(lochi_pool *pool);
/* Takes a pool out of the list. */
void lochi_pool_leave(lochi_pool *pool);

typedef loch_status pool_visitor(lochi_pool *pool, void *user);
/* Calls a function for every pool of the process, under the lock of the list. The first failure ends it. */
loch_status lochi_pool_visit_all(pool_visitor *visit, void *user);

/* Has the other pools of the device and kind give back what they do not use; returns how much. */
size_t lochi_pool_ask_siblings(lochi_pool *pool);
/* Has all pools below the topmost one that is full give back memory, for `bytes` that limits of the family do not leave; returns how
 * much. `pool` itself is asked only if `is_asked`. Nobody is asked below its minimum. */
size_t lochi_pool_ask_family(lochi_pool *pool, size_t bytes, bool is_asked);

#endif
