/* SPDX-License-Identifier: MIT */
/* The front: malloc's work under names of its own, so that tests can call it beside the C library's malloc. malloc.c
 * gives it malloc's names.
 *
 *     front_alloc ── cache (thread) ── shelf (class) ── slab ─┐
 *                                                             ├─ source: the Loch pool "malloc"
 *                                 larger than 32 KiB ─────────┘
 *     front_free  ── page map: class of the address ── the same way back, or to the allocator beneath
 *
 * Requests fall through to the allocator beneath (beneath.h) before the start, inside Loch, and when the pool has no
 * memory. So a request that fails has errno set by the allocator beneath. */
#ifndef FRONT_FRONT_H
#define FRONT_FRONT_H

#include "cache.h"
#include <stddef.h>

/* Starts the front. Until then, and if it fails, the allocator beneath serves all requests. Call it once, before other
 * threads exist. */
void front_start(void);

/* Allocates `bytes` outside of the fast path. Returns NULL if no allocator has memory. */
void *front_alloc_slowly(size_t bytes);

/* Frees a block of a class outside of the fast path. NULL does nothing. */
void front_free_slowly(void *address, unsigned class);

/* Allocates `bytes`, aligned to 16. Zero bytes give an address of their own. NULL: no memory. Any thread. */
static inline void *front_alloc(size_t bytes)
{
    if (__builtin_expect(bytes <= FRONT_SMALL_MAX, 1)) {
        void *address = front_cache_take(front_class_of(bytes));
        if (__builtin_expect(address != NULL, 1)) return address;
    }
    return front_alloc_slowly(bytes);
}

/* Frees a block of any function here or of the allocator beneath. NULL does nothing. Any thread. */
static inline void front_free(void *address)
{
    const unsigned class = front_pages_class(address);
    if (__builtin_expect(!front_cache_put(address, class), 0)) front_free_slowly(address, class);
}

/* Allocates `bytes` of zeros. */
void *front_alloc_zeroed(size_t bytes);

/* Allocates `bytes` at a multiple of `alignment`, a power of two. */
void *front_alloc_aligned(size_t alignment, size_t bytes);

/* Changes the size of a block to `bytes`, which are not 0; `address` is not NULL. Returns NULL if no allocator has
 * memory; the block is unchanged then. */
void *front_realloc(void *address, size_t bytes);

/* Returns the usable size of a block; 0 for NULL and for a block of the allocator beneath. */
size_t front_usable(void *address);

/* Gives free memory back to the system, of the calling thread's cache, the shelves and the pool, until `keep_bytes` are
 * left. Returns the bytes given back. */
size_t front_trim(size_t keep_bytes);

#endif
