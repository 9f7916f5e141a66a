/* SPDX-License-Identifier: MIT */
/* The keys and values of one request, in a child pool of its own: whatever one request takes, the others keep their part, and when it
 * ends all of its memory goes back at once. */
#ifndef DECODER_CACHE_H
#define DECODER_CACHE_H

#include <loch/loch.h>
#include <stdatomic.h>

/* What the caches of all requests hold together. Figures of child pools are their own, and go with them; so they are added up here.
 * Relaxed: they order nothing. */
typedef struct cache_totals {
    atomic_size_t bytes, peak_bytes;
} cache_totals;

typedef struct decoder_cache {
    cache_totals *totals; /* borrowed */
    loch_allocator *pool; /* the request's, on the context's stack */
    float *rows;          /* one for each position: for each layer its keys, then its values */
    size_t length;        /* positions that it has */
    size_t bytes;         /* that it holds */
    int is_whole;         /* non-zero: memory for all positions from the start, where blocks cannot grow */
} decoder_cache;

/* Makes the child pool and an empty cache in it. Ended by cache_close, on failure too. */
loch_status cache_open(decoder_cache *cache, loch_context *context, const char *name, cache_totals *totals);

/* Makes room for `length` positions; those that are there stay at their addresses. */
loch_status cache_grow(decoder_cache *cache, size_t length);

/* A layer's keys of a position; its values lie KV_WIDTH behind, those of the next position CACHE_STEP (model.h). */
float *cache_keys(const decoder_cache *cache, size_t layer, size_t position);

/* Frees the cache and gives the pool back; fails when there is more in it. */
loch_status cache_close(decoder_cache *cache, loch_context *context);

#endif
