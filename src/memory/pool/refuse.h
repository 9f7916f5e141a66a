/* SPDX-License-Identifier: MIT */
/* Why a pool refuses. Each function sets the error record. */
#ifndef LOCHI_POOL_REFUSE_H
#define LOCHI_POOL_REFUSE_H

#include "memory/pool/heap.h"

/* Says why a request does not fit; `status` is what the last step said. */
loch_status lochi_pool_fail(lochi_pool *pool, const pool_want *want, loch_status status);
/* Says whose limit does not leave `bytes` more: E_LIMIT. */
loch_status lochi_pool_fail_limit(lochi_pool *pool, size_t bytes);
/* Says that the pool sleeps as a whole (E_BUSY), or that its device did not survive a fork (E_FORKED). */
loch_status lochi_pool_refuse_asleep(const lochi_pool *pool);
/* Says that a block sleeps: E_BUSY. */
loch_status lochi_pool_refuse_at(const void *address);

#endif
