/* SPDX-License-Identifier: MIT */
/* What single threads keep. The owner of a cache calls these under the lock; whoever has stopped the gate may, too. */
#ifndef LOCHI_POOL_CACHE_H
#define LOCHI_POOL_CACHE_H

#include "memory/pool/state.h"

/* Finds or makes the calling thread's cache for a lane; NULL when it has none and none can be made. */
pool_cache *lochi_pool_cache(lochi_pool *pool, pool_lane *lane);

/* Takes a small block of a class: from the cache, which is filled from the slabs of its lane. One of both has one. E_HOST_MEMORY. */
loch_status lochi_pool_cache_take(const lochi_pool *pool, pool_cache *cache, uint32_t class, pool_entry *out);
/* Keeps a freed small block; false without host memory. */
bool lochi_pool_cache_give(lochi_pool *pool, pool_cache *cache, pool_slab *slab, pool_entry entry);
/* Takes a large block of exactly that size; NULL for none. */
pool_block *lochi_pool_cache_take_block(pool_cache *cache, size_t bytes);
/* Keeps a freed large block; false when there is no room. */
bool lochi_pool_cache_give_block(lochi_pool *pool, pool_cache *cache, pool_block *block);

/* Gives back the last large block that a thread keeps; says whether there was one. */
bool lochi_pool_flush_last(lochi_pool *pool, pool_cache *cache);
/* Gives back the large blocks that a thread keeps by size; says whether there was one. */
bool lochi_pool_flush_bins(lochi_pool *pool, pool_cache *cache);
/* Gives back all that a thread keeps; says whether there was anything. */
bool lochi_pool_flush(lochi_pool *pool, pool_cache *cache);
/* Calls one of the three for the caches of all threads. The gate is stopped. */
bool lochi_pool_flush_all(lochi_pool *pool, bool (*flush)(lochi_pool *pool, pool_cache *cache));
/* Stops the gate, and gives back all that threads keep. */
void lochi_pool_flush_threads(lochi_pool *pool);

/* Counts the bytes of the last large blocks that threads keep: a hint unless stopped. */
size_t lochi_pool_count_last(lochi_pool *pool);
/* Counts the bytes that threads keep. The gate is stopped. */
size_t lochi_pool_count_cached(lochi_pool *pool);

/* Counts one allocation; `cache` may be NULL. */
void lochi_pool_count_alloc(lochi_pool *pool, pool_cache *cache, size_t requested, size_t allocated);
/* Counts one free; `cache` may be NULL. */
void lochi_pool_count_free(lochi_pool *pool, pool_cache *cache, size_t requested, size_t allocated);
/* Counts the change of a block's size; `cache` may be NULL. */
void lochi_pool_count_change(lochi_pool *pool, pool_cache *cache, int64_t requested, int64_t allocated);
/* Adds what a cache has counted to the pool. */
void lochi_pool_publish(lochi_pool *pool, pool_cache *cache);

/* Keeps threads from serving a stream without the lock, and gives back what they keep of it. */
void lochi_pool_forget_stream(lochi_pool *pool, const loch_stream *stream);
/* Takes the caches of a slot out of the pool, emptied and counted. The slot's thread calls. */
pool_cache *lochi_pool_take_caches(lochi_pool *pool, uint32_t slot);
/* Frees caches that are out of the pool. Without the lock. */
void lochi_pool_end_caches(const lochi_pool *pool, pool_cache *cache);
/* Frees all caches of a pool that ends. */
void lochi_pool_close_caches(lochi_pool *pool);

#endif
