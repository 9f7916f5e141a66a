/* SPDX-License-Identifier: MIT */
/* Prices: what driver calls and memory cost, in bytes. */
#ifndef LOCHI_POOL_PRICE_H
#define LOCHI_POOL_PRICE_H

#include "memory/pool/state/state.h"

/* Returns the price of mapping one handle, in bytes. */
double lochi_pool_price(lochi_pool *pool);
/* Returns the price of a search for a better place and of mapping one handle there, in bytes. */
double lochi_pool_search_price(lochi_pool *pool);
/* Returns the size of new handles that fill `bytes`. */
size_t lochi_pool_choose_handle(lochi_pool *pool, size_t bytes);
/* Tells whether a pool places blocks by price: memory of the device that can be remapped. */
static inline bool lochi_pool_may_place(const lochi_pool *pool)
{
    return pool->is_virtual && !pool->range && !pool->is_of_graphs;
}
/* Tells without a search that the price is more than most spots waste: twice the average size of the handles and a
 * cell. False if that is not known. Counts as a use of the price if it is true. */
static inline bool lochi_pool_is_dear(lochi_pool *pool)
{
    const bool is_dear = pool->price_looks && pool->reserved < pool->handles_count * pool->dear_bytes;
    pool->price_looks -= is_dear;
    return is_dear;
}
/* Returns the average size of the handles. */
size_t lochi_pool_usual_handle(const lochi_pool *pool);
/* Tells whether creating `bytes` costs less than remapping `count` idle handles. */
bool lochi_pool_may_create(lochi_pool *pool, size_t bytes, size_t count);
/* Returns the bytes that a pool of pinned memory may hold with `bytes` more in use than now: what was in use at most so
 * far, and a little more. */
size_t lochi_pool_may_hold(const lochi_pool *pool, size_t bytes);
/* Lowers what a pool of pinned memory may hold to what is in use now, and `keep` more. */
void lochi_pool_forget_peak(lochi_pool *pool, size_t keep);

/* Counts the time since `start_ns` (lochi_device_now_ns), in which `handles` were mapped, as time of driver calls. */
void lochi_pool_note_time(lochi_pool *pool, uint64_t start_ns, uint64_t handles);

#endif
