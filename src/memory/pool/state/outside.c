/* SPDX-License-Identifier: MIT */
/* The supply lock, and driver calls outside the pool's lock. */
#include "memory/pool/state/outside.h"
#include "base/fail.h"

void lochi_pool_take_locks(lochi_pool *pool)
{
    lochi_lock_take(&pool->supply);
    lochi_lock_take(&pool->lock);
}

loch_status lochi_pool_take_supply(lochi_pool *pool, bool *is_dropped)
{
    lochi_lock_assert_held(&pool->lock);
    *is_dropped = false;
    if (lochi_pool_is_outside(pool))
        return LOCH_FAIL(BUSY, "a function that is called during a driver call cannot make pool \"%s\" call the driver",
                         loch_allocator_get_name(pool->allocator));
    if (lochi_lock_is_mine(&pool->supply) || lochi_lock_try(&pool->supply)) return LOCH_OK;
    lochi_lock_drop(&pool->lock);
    lochi_pool_take_locks(pool);
    *is_dropped = true;
    return LOCH_OK;
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
    pool->is_outside = true;
    lochi_lock_drop(&pool->lock);
}

void lochi_pool_come_back(lochi_pool *pool)
{
    lochi_lock_take(&pool->lock);
    lochi_pool_assert_both(pool);
    pool->is_outside = false;
    pool->moving.orders++; /* other threads may have queued work on movable blocks */
}
