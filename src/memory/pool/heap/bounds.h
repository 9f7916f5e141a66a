/* SPDX-License-Identifier: MIT */
/* The table of pages: finds the block that starts at an address, or that contains it. */
#ifndef LOCHI_POOL_BOUNDS_H
#define LOCHI_POOL_BOUNDS_H

#include "memory/pool/state/state.h"

uintptr_t lochi_pool_find_raw_page(const lochi_pool *pool, uintptr_t address);
uintptr_t lochi_pool_find_annex_page(const lochi_pool *pool, uintptr_t address);
/* Returns the table entry of the page of an address. No lock needed, except for an address in an annex. */
static inline uintptr_t lochi_pool_find_page(const lochi_pool *pool, uintptr_t address)
{
    const size_t offset = address - pool->base;
    if (LOCHI_UNLIKELY(offset >= pool->span))
        return pool->is_virtual ? lochi_pool_find_annex_page(pool, address) : lochi_pool_find_raw_page(pool, address);
    return atomic_load_explicit(&pool->pages[offset >> POOL_PAGE_SHIFT], memory_order_acquire);
}

/* Starts to fetch the table entry of the page of an address into the processor's cache, to be changed soon. */
static inline void lochi_pool_fetch_page(const lochi_pool *pool, uintptr_t address)
{
    const size_t offset = address - pool->base;
    if (LOCHI_LIKELY(offset < pool->span)) __builtin_prefetch((const void *)&pool->pages[offset >> POOL_PAGE_SHIFT], 1);
}

/* Makes sure that the pages of [start, start + bytes) can be entered. E_HOST_MEMORY. */
loch_status lochi_pool_prepare_pages(lochi_pool *pool, uintptr_t start, size_t bytes);
/* Sets the table entry of a page. */
void lochi_pool_enter_page(lochi_pool *pool, uintptr_t address, uintptr_t value);

/* Returns the number of entries of the table of pages of a reservation: a multiple of 8. */
size_t lochi_pool_count_pages(size_t span);
/* Returns the number of words of leads of a reservation. */
static inline size_t lochi_pool_count_leads(size_t span)
{
    return (span >> POOL_LEAD_SHIFT) + 1;
}

/* Returns the number of words of start bits for a table of `pages`. */
size_t lochi_pool_count_starts(size_t pages);
/* Sets the memory of the start bits. Called before the first page is entered. */
void lochi_pool_open_starts(lochi_pool *pool, _Atomic uint64_t *words, size_t pages);

/* Finds the table entry of the slab around `address`, or of the last block that starts at or before it, and sets
 * that start. Returns 0 for none. The block may end before the address. No lock needed. */
uintptr_t lochi_pool_find_page_around(const lochi_pool *pool, uintptr_t address, uintptr_t *start);
/* Finds the block that contains an address; NULL for none. */
pool_block *lochi_pool_find_around(const lochi_pool *pool, uintptr_t address);
/* Finds the last block at or before an address that the table of pages has; `first`, the first block of the range or
 * raw segment, for none. Only free blocks and those without memory are between it and the address. */
pool_block *lochi_pool_find_before(const lochi_pool *pool, pool_block *first, uintptr_t address);

/* Sets up the tenants of the pool's range and of its annexes, which check copies. */
void lochi_pool_open_bounds(lochi_pool *pool);

#endif
