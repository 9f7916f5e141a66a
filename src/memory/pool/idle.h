/* SPDX-License-Identifier: MIT */
/* The cap on free memory. */
#ifndef LOCHI_POOL_IDLE_H
#define LOCHI_POOL_IDLE_H

#include "memory/pool/state.h"

/* Gives back what is above the cap on free memory and the limits, as far as nobody has to wait for it. A thorough one does not
 * save walks over all blocks. */
void lochi_pool_obey_idle(lochi_pool *pool, bool is_thorough);
/* Returns the free bytes that a trim may keep: `keep`, or what the cap and the limits leave. */
size_t lochi_pool_cap_keep(const lochi_pool *pool, size_t keep);
/* Ends a call that may have freed something. */
static inline void lochi_pool_look_at_idle(lochi_pool *pool)
{
    if (LOCHI_UNLIKELY(pool->is_obedient) && (pool->has_freed || pool->is_over)) lochi_pool_obey_idle(pool, false);
}

#endif
