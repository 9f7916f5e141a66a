/* SPDX-License-Identifier: MIT */
/* Finds the cell of an address, and the handle mapped there. Functions that need no lock say so. */
#ifndef LOCHI_POOL_CELLS_H
#define LOCHI_POOL_CELLS_H

#include "memory/pool/state/state.h"

/* Finds the annex around an address; NULL for none. */
static inline pool_annex *lochi_pool_find_annex(const lochi_pool *pool, uintptr_t address)
{
    lochi_tree_node *node = lochi_tree_at_or_below(&pool->annexes.tree, address);
    pool_annex *annex = node ? LOCHI_CONTAINER(node, pool_annex, node) : NULL;
    return annex && address - node->key < annex->bytes ? annex : NULL;
}
pool_cell *lochi_pool_find_annex_cell(const lochi_pool *pool, uintptr_t address);
/* Frees the cells of an annex. */
void lochi_pool_free_annex_cells(const lochi_pool *pool, pool_annex *annex);

pool_chunk *lochi_pool_find_raw_chunk(const lochi_pool *pool, uintptr_t address);
/* Returns the cell of an address in the range of a pool of virtual memory; NULL if there is none yet. */
static inline pool_cell *lochi_pool_find_range_cell(const lochi_pool *pool, uintptr_t address)
{
    const size_t offset = address - pool->base;
    pool_chunk *chunk = atomic_load_explicit(&pool->chunks[offset >> (pool->policy.cell_shift + POOL_CHUNK_SHIFT)],
                                             memory_order_acquire);
    return chunk ? &chunk->cells[(address >> pool->policy.cell_shift) & (POOL_CHUNK_CELLS - 1)] : NULL;
}

/* Finds the cell of an address; NULL if the pool never had memory there. No lock needed in the pool's range and in raw
 * segments. */
static inline pool_cell *lochi_pool_find_cell(const lochi_pool *pool, uintptr_t address)
{
    if (LOCHI_LIKELY(pool->policy.is_virtual)) {
        if (LOCHI_UNLIKELY(address - pool->base >= pool->span)) return lochi_pool_find_annex_cell(pool, address);
        return lochi_pool_find_range_cell(pool, address);
    }
    pool_chunk *chunk = lochi_pool_find_raw_chunk(pool, address);
    return chunk ? &chunk->cells[(address >> pool->policy.cell_shift) & (POOL_CHUNK_CELLS - 1)] : NULL;
}

/* Returns the handle at an address; NULL if nothing is mapped there. */
static inline pool_handle *lochi_pool_find_handle(const lochi_pool *pool, uintptr_t address)
{
    const pool_cell *cell = lochi_pool_find_cell(pool, address);
    return cell ? cell->handle : NULL;
}

/* Returns the end of the handle at an address, or the end of the cell if `handle` is NULL. */
static inline uintptr_t lochi_pool_find_end(const lochi_pool *pool, const pool_handle *handle, uintptr_t address)
{
    return handle ? handle->at + handle->bytes : (address & ~(uintptr_t)(pool->cell_bytes - 1)) + pool->cell_bytes;
}

/* Tells whether a handle is asleep (has no memory). NULL is not asleep. */
static inline bool lochi_pool_is_asleep(const pool_handle *handle)
{
    return handle && handle->rest >= POOL_ASLEEP;
}

/* Makes the chunks of cells of a range of addresses. E_HOST_MEMORY. */
loch_status lochi_pool_make_cells(lochi_pool *pool, uintptr_t start, size_t bytes);
/* Sets the handle that is mapped at a range of addresses; NULL for none. */
void lochi_pool_set_cells(lochi_pool *pool, uintptr_t start, size_t bytes, pool_handle *handle);

/* Makes the table of chunks of a reservation. Returns false without host memory. */
bool lochi_pool_open_cells(lochi_pool *pool);
/* Frees all chunks of a pool that ends. */
void lochi_pool_close_cells(lochi_pool *pool);

/* Finds the first handle that lies wholly between two addresses of free memory and has no second mapping. Returns
 * NULL for none. */
pool_handle *lochi_pool_find_whole(lochi_pool *pool, uintptr_t start, uintptr_t end);
/* Finds the first handle that lies wholly between two addresses of free memory, and in part under a free block there.
 * Returns NULL for none. */
pool_handle *lochi_pool_find_whole_under(lochi_pool *pool, const pool_block *block, uintptr_t start, uintptr_t end);

/* Tells whether memory in [start, start + bytes) is asleep. */
bool lochi_pool_sleeps_in(const lochi_pool *pool, uintptr_t start, size_t bytes);
/* Tells whether memory is asleep. Costs one load while the whole pool is awake. */
static inline bool lochi_pool_sleeps_at(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    return LOCHI_UNLIKELY(pool->sleep.naps != NULL) && lochi_pool_sleeps_in(pool, start, bytes);
}

#endif
