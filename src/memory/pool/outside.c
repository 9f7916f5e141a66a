/* SPDX-License-Identifier: MIT */
/* The supply lock, and driver calls outside the pool's lock. */
#include "memory/pool/outside.h"

void lochi_pool_take_locks(lochi_pool *pool)
{
    lochi_lock_take(&pool->supply);
    lochi_lock_take(&pool->lock);
}

bool lochi_pool_take_supply(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    if (lochi_lock_is_mine(&pool->supply) || lochi_lock_try(&pool->supply)) return false;
    lochi_lock_drop(&pool->lock);
    lochi_pool_take_locks(pool);
    return true;
}

bool lochi_pool_try_supply(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    if (lochi_lock_is_mine(&pool->supply)) return !pool->is_outside;
    return lochi_lock_try(&pool->supply);
}

void lochi_pool_go_outside(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    lochi_lock_drop(&pool->lock);
}

void lochi_pool_come_back(lochi_pool *pool)
{
    lochi_lock_take(&pool->lock);
    lochi_pool_assert_both(pool);
}
