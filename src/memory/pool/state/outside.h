/* SPDX-License-Identifier: MIT */
/* The supply lock, and driver calls outside the pool's lock. structs.h describes both locks. */
#ifndef LOCHI_POOL_OUTSIDE_H
#define LOCHI_POOL_OUTSIDE_H

#include "memory/pool/state/structs.h"

/* Asserts that the calling thread holds both locks. First statement of every function that changes handles, or that
 * goes outside. */
static inline void lochi_pool_assert_both(const lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->supply);
    lochi_lock_assert_held(&pool->lock);
}

/* Tells whether the calling thread is outside: a function that a driver call has called uses the pool. Such a call
 * cannot need the supply lock, which its thread holds for the driver call. The pool's lock is held. */
static inline bool lochi_pool_is_outside(const lochi_pool *pool)
{
    return LOCHI_UNLIKELY(lochi_lock_is_mine(&pool->supply)) && pool->is_outside;
}

/* Takes both locks. lochi_pool_drop_locks drops them (idle.h). */
void lochi_pool_take_locks(lochi_pool *pool);
/* Takes the supply lock too, for a thread that holds the pool's lock. Sets `*is_dropped` if the pool's lock was dropped
 * meanwhile, because another thread had the supply lock. E_BUSY if the thread is outside. */
loch_status lochi_pool_take_supply(lochi_pool *pool, bool *is_dropped);

/* Takes the supply lock too, unless another thread has it. Returns whether the thread has it now. */
bool lochi_pool_try_supply(lochi_pool *pool);

/* Drops the pool's lock for driver calls. The thread keeps the supply lock. */
void lochi_pool_go_outside(lochi_pool *pool);
/* Takes the pool's lock again after lochi_pool_go_outside. */
void lochi_pool_come_back(lochi_pool *pool);

#endif
