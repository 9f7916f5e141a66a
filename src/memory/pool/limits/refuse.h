/* SPDX-License-Identifier: MIT */
/* Error sentences of a pool. Each function sets the error record. */
#ifndef LOCHI_POOL_REFUSE_H
#define LOCHI_POOL_REFUSE_H

#include "memory/pool/heap/heap.h"

/* Refuses a request that is larger than a limit on its path, or than the device: it can never be served. E_LIMIT,
 * E_DEVICE_MEMORY. */
loch_status lochi_pool_check_ceiling(const lochi_pool *pool, size_t bytes);
/* Fails because a request does not fit. `status` is the result of the last step. */
loch_status lochi_pool_fail(lochi_pool *pool, const pool_want *want, loch_status status);
/* Fails because a limit does not leave `bytes` more, and names the pool of that limit. E_LIMIT; E_DEVICE_MEMORY for a
 * family without a limit. */
loch_status lochi_pool_fail_limit(lochi_pool *pool, size_t bytes);
/* Fails because the whole pool is asleep (E_BUSY), or because its device did not survive a fork (E_FORKED). */
loch_status lochi_pool_refuse_asleep(const lochi_pool *pool);
/* Fails because a block is asleep. E_BUSY. */
loch_status lochi_pool_refuse_at(const void *address);

#endif
