/* SPDX-License-Identifier: MIT */
/* The keys and values of one request, in a child pool of its own. A request cannot take memory that is guaranteed to
 * others, and all its memory is freed when it ends. */
#ifndef DECODER_CACHE_H
#define DECODER_CACHE_H

#include <loch/loch.h>
#include <stdatomic.h>

/* Sums over the caches of all requests. The statistics of a child pool end with the pool, so they are added here.
 * Relaxed atomics: they order nothing. */
typedef struct cache_totals {
    atomic_size_t bytes, peak_bytes;
} cache_totals;

typedef struct decoder_cache {
    cache_totals *totals; /* borrowed */
    loch_allocator *pool; /* pool of the request, on the stack of the context */
    float *rows;          /* one step for each position: for each layer its keys, then its values */
    size_t length;        /* number of positions in the cache */
    size_t bytes;         /* number of bytes that the cache holds */
    int is_whole;         /* non-zero: blocks cannot grow, so there is memory for all positions from the start */
} decoder_cache;

/* Creates the child pool and an empty cache in it. Call cache_close in any case, also after a failure. */
loch_status cache_open(decoder_cache *cache, loch_context *context, const char *name, cache_totals *totals);

/* Makes room for `length` positions; existing positions keep their addresses. */
loch_status cache_grow(decoder_cache *cache, size_t length);

/* Returns the keys of a layer at a position. Its values are KV_WIDTH floats behind, the keys of the next position
 * CACHE_STEP (model.h). */
float *cache_keys(const decoder_cache *cache, size_t layer, size_t position);

/* Frees the cache and removes the pool; fails if other blocks are left in it. */
loch_status cache_close(decoder_cache *cache, loch_context *context);

#endif
