/* SPDX-License-Identifier: MIT */
/* The keys and values of one request. Two kinds of caches hold them:
 *
 *   grown   one block that grows with every token, at one address, in a child pool of the request. A request cannot
 *           take memory that is guaranteed to others, and all its memory is freed when it ends.
 *   paged   pages of a region that all requests share (pages.h), in any order. A table finds the page of a position. */
#ifndef DECODER_CACHE_H
#define DECODER_CACHE_H

#include "pages.h"
#include "shape.h"
#include <loch/engine.h>
#include <loch/loch.h>
#include <stdatomic.h>

typedef enum cache_kind { CACHE_GROWN, CACHE_PAGED } cache_kind;

/* What the caches of all requests have in common, and sums over them. The statistics of a child pool end with the pool,
 * so they are added here. Relaxed atomics: they order nothing. */
typedef struct cache_family {
    const decoder_shape *shape;
    cache_kind kind;
    size_t element_bytes;
    decoder_pages pages; /* for CACHE_PAGED */
    atomic_size_t bytes, peak_bytes;
} cache_family;

typedef struct decoder_cache {
    cache_family *family; /* borrowed */
    loch_allocator *pool; /* grown: pool of the request, on the stack of the context */
    char *rows;           /* grown: one step for each position: for each layer its keys, then its values */
    int32_t *pages;       /* paged: numbers of the pages */
    size_t pages_count;   /* paged */
    size_t length;        /* number of positions in the cache */
    size_t bytes;         /* number of bytes that the cache holds */
    int is_whole;         /* non-zero: blocks cannot grow, so there is memory for all positions from the start */
} decoder_cache;

/* Prepares the caches of an engine; call family_close in any case. `pool` is the pool of the seat. */
loch_status family_open(cache_family *family, const decoder_shape *shape, cache_kind kind, size_t element_bytes,
                        loch_allocator *pool, loch_stream *stream);

loch_status family_close(cache_family *family);

/* Creates an empty cache, and for a grown one its child pool. Call cache_close in any case, also after a failure. */
loch_status cache_open(decoder_cache *cache, cache_family *family, loch_context *context, const char *name);

/* Makes room for `length` positions; existing positions keep their addresses. */
loch_status cache_grow(decoder_cache *cache, size_t length);

/* Returns the keys of a layer at a position. The values are shape_kv_width elements behind. */
void *cache_keys(const decoder_cache *cache, size_t layer, size_t position);

/* Frees the cache and removes the pool; fails if other blocks are left in it. */
loch_status cache_close(decoder_cache *cache, loch_context *context);

#endif
