/* SPDX-License-Identifier: MIT */
/* The gate of the fast path (fast.h). A thread that holds the lock closes it to read the threads' caches. A thread
 * that waits for memory keeps it closed, so that every free takes the slow path and wakes the waiting thread.
 * tests/models/gate.pml and tests/models/waiters.pml are models of this. */
#include "memory/pool/front/gate.h"
#include "kit/backoff.h"
#include "base/fence.h"
#include "memory/pool/state/state.h"

void lochi_pool_await(lochi_pool *pool)
{
    const uint32_t top = atomic_load_explicit(&lochi_thread_slots_top, memory_order_relaxed);
    for (uint32_t slot = 1; slot <= top; slot++)
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_acquire); cache;
             cache = cache->next)
            for (unsigned turn = 0; atomic_load_explicit(&cache->busy, memory_order_acquire);)
                lochi_backoff(&turn);
}

void lochi_pool_stop(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    atomic_fetch_add_explicit(&pool->gate, 1, memory_order_seq_cst);
    lochi_fence_heavy();
    lochi_pool_await(pool);
}

void lochi_pool_stop_outside(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    atomic_fetch_add_explicit(&pool->gate, 1, memory_order_seq_cst);
    lochi_pool_go_outside(pool);
    lochi_fence_heavy();
    lochi_pool_come_back(pool);
    lochi_pool_await(pool);
}

void lochi_pool_go(lochi_pool *pool)
{
    atomic_fetch_sub_explicit(&pool->gate, 1, memory_order_release);
}

void lochi_pool_shut(lochi_pool *pool)
{
    lochi_lock_take(&pool->supply); /* waits for calls that dropped the other lock for the driver */
    lochi_lock_take(&pool->lock);   /* keeps other threads from linking a cache */
    lochi_pool_stop(pool);
    lochi_lock_drop(&pool->supply);
    lochi_lock_drop(&pool->lock);
}

/* --- threads that wait for memory --- */

void lochi_pool_shut_waiting(lochi_pool *pool)
{
    lochi_lock_take(&pool->lock);
    pool->waiters++;
    lochi_pool_stop(pool);
    lochi_lock_drop(&pool->lock);
}

void lochi_pool_go_waiting(lochi_pool *pool)
{
    lochi_lock_take(&pool->lock);
    pool->waiters--;
    lochi_pool_go(pool);
    lochi_lock_drop(&pool->lock);
}

/* --- in the child of a fork --- */

void lochi_pool_leave_caches(lochi_pool *pool)
{
    for (uint32_t slot = 1; slot <= LOCHI_SLOT_SHARED; slot++)
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next)
            atomic_store_explicit(&cache->busy, false, memory_order_relaxed);
}

void lochi_pool_forget_waiters(lochi_pool *pool)
{
    atomic_fetch_sub_explicit(&pool->gate, pool->waiters, memory_order_relaxed);
    pool->waiters = 0;
}

void lochi_pool_note_waiter(lochi_pool *pool)
{
    atomic_fetch_add_explicit(&pool->gate, 1, memory_order_relaxed);
    pool->waiters++;
}
