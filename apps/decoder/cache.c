/* SPDX-License-Identifier: MIT */
/* A grown cache is a growable block. Its addresses are reserved for the longest request; memory is added token by
 * token. So the cache grows without a copy, and a short request takes little memory. A paged cache takes a page every
 * PAGE_POSITIONS tokens. */
#include "cache.h"
#include <stdlib.h>

/* The most requests that can have pages at a time. */
#define REQUESTS_MAX 64

static size_t row_bytes(const cache_family *family)
{
    return shape_cache_step(family->shape) * family->element_bytes;
}

static size_t pages_each(const cache_family *family)
{
    return (family->shape->context + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
}

/* --- all caches --- */

loch_status family_open(cache_family *family, const decoder_shape *shape, cache_kind kind, size_t element_bytes,
                        loch_allocator *pool, loch_stream *stream)
{
    *family = (cache_family){.shape = shape, .kind = kind, .element_bytes = element_bytes};
    if (kind != CACHE_PAGED) return LOCH_OK;
    return pages_open(&family->pages, pool, PAGE_POSITIONS * row_bytes(family), REQUESTS_MAX * pages_each(family),
                      stream);
}

loch_status family_close(cache_family *family)
{
    return pages_close(&family->pages);
}

static void cache_count(decoder_cache *cache, size_t bytes)
{
    cache_family *family = cache->family;
    const size_t added = bytes - cache->bytes; /* unsigned numbers: a negative value is added by wrap-around */
    const size_t all = atomic_fetch_add_explicit(&family->bytes, added, memory_order_relaxed) + added;
    size_t peak = atomic_load_explicit(&family->peak_bytes, memory_order_relaxed);
    while (peak < all && !atomic_compare_exchange_weak_explicit(&family->peak_bytes, &peak, all, memory_order_relaxed,
                                                                memory_order_relaxed)) {}
    cache->bytes = bytes;
}

/* --- one cache --- */

static loch_status grown_alloc(decoder_cache *cache, loch_context *context)
{
    const size_t longest = cache->family->shape->context * row_bytes(cache->family);
    loch_request request = {.size = sizeof request};
    void *block = NULL;
    LOCH_RETURN(loch_context_require_stream(context, &request.stream));
    LOCH_RETURN(loch_tag_create("caches", &request.tag));
    loch_status status = loch_pool_alloc_growable(cache->pool, longest, &request, &block);
    /* the device has no virtual memory, or the engine has no pools */
    if (status == LOCH_E_UNSUPPORTED || status == LOCH_E_INVALID) {
        request.bytes = longest;
        cache->is_whole = 1;
        status = loch_allocator_alloc(cache->pool, &request, &block);
        if (status == LOCH_OK) cache_count(cache, longest);
    }
    cache->rows = block;
    return status;
}

loch_status cache_open(decoder_cache *cache, cache_family *family, loch_context *context, const char *name)
{
    *cache = (decoder_cache){.family = family};
    if (family->kind == CACHE_PAGED) {
        cache->pages = malloc(pages_each(family) * sizeof *cache->pages);
        if (cache->pages) return LOCH_OK;
        return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for the page table of a request");
    }
    /* The most bytes that a request may hold: its cache, and the rounding of the pool. */
    const size_t limit = family->shape->context * row_bytes(family) + ((size_t)4 << 20);
    const loch_child_options options = {.size = sizeof options, .kind = LOCH_CHILD_QUOTA, .limit_bytes = limit};
    LOCH_RETURN(loch_context_push_pool(context, name, &options, &cache->pool));
    LOCH_RETURN(loch_context_use_pool(context, 0)); /* for the cache only: activations come from the pool of the seat */
    return grown_alloc(cache, context);
}

loch_status cache_grow(decoder_cache *cache, size_t length)
{
    cache_family *family = cache->family;
    if (length > family->shape->context)
        return loch_error_set(LOCH_E_OUT_OF_RANGE, NULL, 0, "a request has %zu positions at most",
                              family->shape->context);
    if (family->kind == CACHE_PAGED) {
        while (cache->pages_count * PAGE_POSITIONS < length) {
            LOCH_RETURN(pages_take(&family->pages, &cache->pages[cache->pages_count]));
            cache_count(cache, ++cache->pages_count * family->pages.page_bytes);
        }
    } else if (!cache->is_whole) {
        LOCH_RETURN(loch_pool_resize_growable(cache->pool, cache->rows, length * row_bytes(family)));
        cache_count(cache, length * row_bytes(family));
    }
    cache->length = length;
    return LOCH_OK;
}

void *cache_keys(const decoder_cache *cache, size_t layer, size_t position)
{
    const cache_family *family = cache->family;
    char *base = cache->rows;
    if (family->kind == CACHE_PAGED) {
        base = family->pages.region + (size_t)cache->pages[position / PAGE_POSITIONS] * family->pages.page_bytes;
        position %= PAGE_POSITIONS;
    }
    return base + position * row_bytes(family) + layer * 2 * shape_kv_width(family->shape) * family->element_bytes;
}

/* Removes the pool in any case. Fails if a block is left in it, which would otherwise stay unnoticed. Without pools
 * there is a limit wrapper instead, whose statistics count all memory: closing the engine then finds leaks. */
static loch_status grown_close(const decoder_cache *cache, loch_context *context)
{
    loch_stats stats = {.size = sizeof stats};
    loch_status status = loch_free(cache->pool, cache->rows);
    if (status == LOCH_OK) status = loch_allocator_get_stats(cache->pool, &stats);
    if (status == LOCH_OK && stats.blocks && loch_pool_get_parent(cache->pool))
        status = loch_error_set(LOCH_E_BUSY, NULL, 0, "%llu blocks of \"%s\" are left behind",
                                (unsigned long long)stats.blocks, loch_allocator_get_name(cache->pool));
    const loch_status popped = loch_context_pop_pool(context);
    return status == LOCH_OK ? popped : status;
}

loch_status cache_close(decoder_cache *cache, loch_context *context)
{
    if (!cache->family) return LOCH_OK;
    cache_count(cache, 0);
    loch_status status = LOCH_OK;
    if (cache->pages) pages_put(&cache->family->pages, cache->pages, cache->pages_count);
    if (cache->pool) status = grown_close(cache, context);
    free(cache->pages);
    *cache = (decoder_cache){.family = NULL};
    return status;
}
