/* SPDX-License-Identifier: MIT */
/* The cache is a growable block. Its addresses are reserved for the longest request; memory is added token by token. So
 * the cache grows without a copy, and a short request takes little memory. */
#include "cache.h"
#include "model.h"

#define ROW_BYTES (CACHE_STEP * sizeof(float))
#define LONGEST_BYTES (CONTEXT * ROW_BYTES)

/* The most bytes that a request may hold: its cache, and the rounding of the pool. */
#define LIMIT_BYTES (LONGEST_BYTES + ((size_t)4 << 20))

static void cache_count(decoder_cache *cache, size_t bytes)
{
    const size_t added = bytes - cache->bytes; /* unsigned numbers: a negative value is added by wrap-around */
    const size_t all = atomic_fetch_add_explicit(&cache->totals->bytes, added, memory_order_relaxed) + added;
    size_t peak = atomic_load_explicit(&cache->totals->peak_bytes, memory_order_relaxed);
    while (peak < all && !atomic_compare_exchange_weak_explicit(&cache->totals->peak_bytes, &peak, all,
                                                                memory_order_relaxed, memory_order_relaxed)) {}
    cache->bytes = bytes;
}

static loch_status cache_alloc(decoder_cache *cache)
{
    loch_request request = {.size = sizeof request};
    void *block = NULL;
    LOCH_RETURN(loch_tag_create("caches", &request.tag));
    loch_status status = loch_pool_alloc_growable(cache->pool, LONGEST_BYTES, &request, &block);
    /* the device has no virtual memory, or the engine has no pools */
    if (status == LOCH_E_UNSUPPORTED || status == LOCH_E_INVALID) {
        request.bytes = LONGEST_BYTES;
        cache->is_whole = 1;
        status = loch_allocator_alloc(cache->pool, &request, &block);
        if (status == LOCH_OK) cache_count(cache, LONGEST_BYTES);
    }
    cache->rows = block;
    return status;
}

loch_status cache_open(decoder_cache *cache, loch_context *context, const char *name, cache_totals *totals)
{
    const loch_child_options options = {.size = sizeof options, .kind = LOCH_CHILD_QUOTA, .limit_bytes = LIMIT_BYTES};
    *cache = (decoder_cache){.totals = totals};
    LOCH_RETURN(loch_context_push_pool(context, name, &options, &cache->pool));
    LOCH_RETURN(loch_context_use_pool(context, 0)); /* for the cache only: activations come from the pool of the seat */
    return cache_alloc(cache);
}

loch_status cache_grow(decoder_cache *cache, size_t length)
{
    if (length > CONTEXT)
        return loch_error_set(LOCH_E_OUT_OF_RANGE, NULL, 0, "a request has %d positions at most", (int)CONTEXT);
    if (!cache->is_whole) {
        LOCH_RETURN(loch_pool_resize_growable(cache->pool, cache->rows, length * ROW_BYTES));
        cache_count(cache, length * ROW_BYTES);
    }
    cache->length = length;
    return LOCH_OK;
}

float *cache_keys(const decoder_cache *cache, size_t layer, size_t position)
{
    return cache->rows + position * CACHE_STEP + layer * 2 * KV_WIDTH;
}

/* Removes the pool in any case. Fails if a block is left in it, which would otherwise stay unnoticed. Without pools
 * there is a limit wrapper instead, whose statistics count all memory: closing the engine then finds leaks. */
loch_status cache_close(decoder_cache *cache, loch_context *context)
{
    if (!cache->pool) return LOCH_OK;
    loch_stats stats = {.size = sizeof stats};
    loch_status status = loch_free(cache->pool, cache->rows);
    cache_count(cache, 0);
    if (status == LOCH_OK) status = loch_allocator_get_stats(cache->pool, &stats);
    if (status == LOCH_OK && stats.blocks && loch_pool_get_parent(cache->pool))
        status = loch_error_set(LOCH_E_BUSY, NULL, 0, "%llu blocks of \"%s\" are left behind",
                                (unsigned long long)stats.blocks, loch_allocator_get_name(cache->pool));
    const loch_status popped = loch_context_pop_pool(context);
    *cache = (decoder_cache){.pool = NULL};
    return status == LOCH_OK ? popped : status;
}
