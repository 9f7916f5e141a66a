/* SPDX-License-Identifier: MIT */
/* The cap on free memory. */
#ifndef LOCHI_POOL_IDLE_H
#define LOCHI_POOL_IDLE_H

#include "memory/pool/state/state.h"

/* Gives back memory above the cap on free memory and above the limits, without waiting. `is_thorough`: looks
 * even if nothing was freed since the last look. Both locks are held. */
void lochi_pool_obey_idle(lochi_pool *pool, bool is_thorough);
/* Gives back memory above the cap if the supply lock is free or held. Otherwise the thread that holds it does so. The
 * pool's lock is held, and dropped during driver calls. */
void lochi_pool_try_obey(lochi_pool *pool, bool is_thorough);
/* Obeys the cap after a free. The pool's lock is held, and dropped during driver calls. */
void lochi_pool_obey_soon(lochi_pool *pool);
/* Returns the free bytes above the cap and the limits. */
size_t lochi_pool_count_excess(const lochi_pool *pool);
/* Returns the free bytes that a trim may keep: `keep`, or less if the cap or a limit leaves less. */
size_t lochi_pool_cap_keep(const lochi_pool *pool, size_t keep);
/* Obeys the cap at the end of a call that may have freed something. */
static inline void lochi_pool_look_at_idle(lochi_pool *pool)
{
    if (LOCHI_UNLIKELY(pool->is_obedient) && (pool->has_freed || pool->is_over)) lochi_pool_obey_soon(pool);
}
/* Drops the pool's lock, and before that the supply lock if the thread has it. Returns the segments for the pool's
 * source: the caller passes them to lochi_pool_give_returned when it holds no lock. */
pool_handle *lochi_pool_drop_both(lochi_pool *pool);
/* Drops the locks as lochi_pool_drop_locks does, whichever the thread has. */
void lochi_pool_drop_any(lochi_pool *pool);
/* Drops the pool's lock, and before that the supply lock if the thread has it. Then gives segments back to the pool's
 * source. A call that needed neither has only the pool's lock to drop. */
static inline void lochi_pool_drop_locks(lochi_pool *pool)
{
    if (LOCHI_LIKELY(!pool->returned && !lochi_lock_is_mine(&pool->supply)))
        lochi_lock_drop(&pool->lock);
    else
        lochi_pool_drop_any(pool);
}

#endif
