/* SPDX-License-Identifier: MIT */
/* The table of pages: from an address to the block that starts there, or that it lies in. */
#ifndef LOCHI_POOL_BOUNDS_H
#define LOCHI_POOL_BOUNDS_H

#include "memory/pool/state.h"

uintptr_t lochi_pool_find_raw_page(const lochi_pool *pool, uintptr_t address);
/* What the table of pages says of an address. Without the lock. */
static inline uintptr_t lochi_pool_find_page(const lochi_pool *pool, uintptr_t address)
{
    const size_t offset = address - pool->base;
    if (LOCHI_UNLIKELY(offset >= pool->span)) return pool->is_virtual ? 0 : lochi_pool_find_raw_page(pool, address);
    return atomic_load_explicit(&pool->pages[offset >> POOL_PAGE_SHIFT], memory_order_acquire);
}

/* Makes sure that the pages of [start, start + bytes) can be entered. E_HOST_MEMORY. */
loch_status lochi_pool_prepare_pages(lochi_pool *pool, uintptr_t start, size_t bytes);
/* Enters what a page leads to. */
void lochi_pool_enter_page(lochi_pool *pool, uintptr_t address, uintptr_t value);

/* Counts the words of the bits for a table of `pages`. */
size_t lochi_pool_count_starts(size_t pages);
/* Sets the place of those words, before the first page is entered. */
void lochi_pool_open_starts(lochi_pool *pool, _Atomic uint64_t *words, size_t pages);

/* Finds the entry of the block that starts last at or before `address`, and that start, or of the slab around it; 0 for none.
 * The block may end before the address. Without the lock. */
uintptr_t lochi_pool_find_page_around(const lochi_pool *pool, uintptr_t address, uintptr_t *start);
/* Finds the block that an address lies in; NULL when it is in none. */
pool_block *lochi_pool_find_around(const lochi_pool *pool, uintptr_t address);

/* Makes the pool's tenant, which checks copies. */
void lochi_pool_open_bounds(lochi_pool *pool);

#endif
