/* SPDX-License-Identifier: MIT */
/* The threads' caches. The caller holds the pool's lock. It owns the cache, or it has closed the gate and waited
 * (lochi_pool_stop). */
#ifndef LOCHI_POOL_CACHE_H
#define LOCHI_POOL_CACHE_H

#include "memory/pool/state/state.h"
#include "memory/session/session.h"

/* Returns the calling thread's first cache if it serves a stream without the lock; NULL if lane and cache of the stream
 * have to be searched. */
static inline pool_cache *lochi_pool_cache_serving(const lochi_pool *pool, const loch_stream *stream)
{
    lochi_lock_assert_held(&pool->lock);
    if (LOCHI_UNLIKELY(lochi_session_top)) return NULL;
    pool_cache *first = atomic_load_explicit(&pool->caches[lochi_thread_slot_plus_one], memory_order_relaxed);
    return first && first->stream == stream ? first : NULL;
}
/* Finds or makes the calling thread's cache for a lane. Returns NULL if the thread has no cache and cannot get one. */
pool_cache *lochi_pool_cache(lochi_pool *pool, pool_lane *lane);

/* Finds or makes the calling thread's cache for a lane. Returns it at once if it is the first one and serves its stream
 * without the lock. */
static inline pool_cache *lochi_pool_cache_of(lochi_pool *pool, pool_lane *lane)
{
    pool_cache *first = lochi_pool_cache_serving(pool, lane->stream);
    if (LOCHI_UNLIKELY(!first || first->lane != lane)) return lochi_pool_cache(pool, lane);
    first->transfer = lane->transfer; /* another thread may have made it */
    return first;
}

/* Takes a small block of a class from the cache, after filling the cache from the slabs of its lane if it is empty.
 * The cache or the slabs must have a block. E_HOST_MEMORY. */
loch_status lochi_pool_cache_take(const lochi_pool *pool, pool_cache *cache, uint32_t class, pool_entry *out);
/* Caches a freed small block. Returns false without host memory. */
bool lochi_pool_cache_give(lochi_pool *pool, pool_cache *cache, pool_slab *slab, pool_entry entry);
/* Takes a cached large block of exactly `bytes`; NULL for none. */
pool_block *lochi_pool_cache_take_block(pool_cache *cache, size_t bytes);
/* Caches a freed large block. Returns false if there is no room. */
bool lochi_pool_cache_give_block(lochi_pool *pool, pool_cache *cache, pool_block *block);

/* Gives back the last large block that a thread freed and cached. Returns whether there was one. */
bool lochi_pool_flush_last(lochi_pool *pool, pool_cache *cache);
/* Gives back the cached large blocks of a thread that are sorted by size. Returns whether there was one. */
bool lochi_pool_flush_bins(lochi_pool *pool, pool_cache *cache);
/* Gives back everything that a thread caches. Returns whether there was anything. */
bool lochi_pool_flush(lochi_pool *pool, pool_cache *cache);
/* Calls one of the three flush functions for the caches of all threads. The gate must be stopped. */
bool lochi_pool_flush_all(lochi_pool *pool, bool (*flush)(lochi_pool *pool, pool_cache *cache));
/* Stops the gate and gives back everything that threads cache or left to each other. */
void lochi_pool_flush_threads(lochi_pool *pool);

/* Returns the bytes in the last large blocks of all threads. The number is a hint unless the gate is stopped. */
size_t lochi_pool_count_last(lochi_pool *pool);
/* Returns the bytes that threads cache or left to each other. The gate must be stopped. */
size_t lochi_pool_count_cached(lochi_pool *pool);

/* Counts one allocation. `cache` may be NULL. */
void lochi_pool_count_alloc(lochi_pool *pool, pool_cache *cache, size_t requested, size_t allocated);
/* Counts one free. `cache` may be NULL. */
void lochi_pool_count_free(lochi_pool *pool, pool_cache *cache, size_t requested, size_t allocated);
/* Counts the change of a block's size. `cache` may be NULL. */
void lochi_pool_count_change(lochi_pool *pool, pool_cache *cache, int64_t requested, int64_t allocated);

/* Keeps threads from serving a stream on the fast path, and gives back what they cache for it. */
void lochi_pool_forget_stream(lochi_pool *pool, const loch_stream *stream);
/* Takes the caches of a slot out of the pool, emptied and counted. Called by the slot's thread. */
pool_cache *lochi_pool_take_caches(lochi_pool *pool, uint32_t slot);
/* Frees caches that are no longer in the pool. Call without the lock. */
void lochi_pool_end_caches(const lochi_pool *pool, pool_cache *cache);
/* Frees all caches of a pool that ends. */
void lochi_pool_close_caches(lochi_pool *pool);

#endif
