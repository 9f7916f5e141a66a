/* SPDX-License-Identifier: MIT */
/* The cells of a pool's addresses: one for each granule, with the handle that is mapped there. A chunk of cells is
 * made when its addresses first get memory, and stays until the pool ends, so it is read without the lock. Raw
 * segments lie anywhere in the address space: a hash table finds their chunks. The chunks of an annex belong to its
 * record and are read with the lock held. */
#include "memory/pool/heap/cells.h"
#include "base/fail.h"
#include "base/heap.h"

/* The hash table of the chunks of raw segments. It is read without a lock, so it grows by being replaced. Old tables
 * are kept until the pool ends. */
struct pool_directory {
    struct pool_directory *old;
    size_t mask, count;
    struct {
        _Atomic uintptr_t key; /* number of the chunk, plus 1 */
        _Atomic(pool_chunk *) chunk;
    } places[];
};

/* --- annexes --- */

/* Returns the number of chunks of cells for `bytes` of addresses. */
static size_t cells_count(const lochi_pool *pool, size_t bytes)
{
    const unsigned shift = pool->policy.cell_shift + POOL_CHUNK_SHIFT;
    return (bytes + ((size_t)1 << shift) - 1) >> shift;
}

pool_cell *lochi_pool_find_annex_cell(const lochi_pool *pool, uintptr_t address)
{
    const pool_annex *annex = lochi_pool_find_annex(pool, address);
    if (!annex || !annex->chunks) return NULL;
    pool_chunk *chunk = annex->chunks[(address - annex->node.key) >> (pool->policy.cell_shift + POOL_CHUNK_SHIFT)];
    return chunk ? &chunk->cells[(address >> pool->policy.cell_shift) & (POOL_CHUNK_CELLS - 1)] : NULL;
}

/* Enters a chunk of cells of an annex. Returns false without host memory. */
static bool cells_enter_annex(const lochi_pool *pool, pool_annex *annex, uintptr_t address, pool_chunk *chunk)
{
    if (!annex->chunks) annex->chunks = lochi_zalloc(cells_count(pool, annex->bytes) * sizeof *annex->chunks);
    if (!annex->chunks) return false;
    annex->chunks[(address - annex->node.key) >> (pool->policy.cell_shift + POOL_CHUNK_SHIFT)] = chunk;
    return true;
}

void lochi_pool_free_annex_cells(const lochi_pool *pool, pool_annex *annex)
{
    const size_t chunks = annex->chunks ? cells_count(pool, annex->bytes) : 0;
    for (size_t i = 0; i < chunks; i++)
        lochi_free(annex->chunks[i]);
    lochi_free(annex->chunks);
    annex->chunks = NULL;
}

/* --- raw segments --- */

static size_t cells_hash(uintptr_t key)
{
    return (size_t)((uint64_t)key * 0x9e3779b97f4a7c15u >> 32);
}

pool_chunk *lochi_pool_find_raw_chunk(const lochi_pool *pool, uintptr_t address)
{
    struct pool_directory *directory = atomic_load_explicit(&pool->directory, memory_order_acquire);
    const uintptr_t key = (address >> (pool->policy.cell_shift + POOL_CHUNK_SHIFT)) + 1;
    if (!directory) return NULL;
    for (size_t i = cells_hash(key);; i++) {
        const uintptr_t found = atomic_load_explicit(&directory->places[i & directory->mask].key, memory_order_acquire);
        if (found == key)
            return atomic_load_explicit(&directory->places[i & directory->mask].chunk, memory_order_acquire);
        if (!found) return NULL;
    }
}

static void cells_enter_chunk(struct pool_directory *directory, uintptr_t key, pool_chunk *chunk)
{
    size_t i = cells_hash(key);
    while (atomic_load_explicit(&directory->places[i & directory->mask].key, memory_order_relaxed))
        i++;
    atomic_store_explicit(&directory->places[i & directory->mask].chunk, chunk, memory_order_relaxed);
    atomic_store_explicit(&directory->places[i & directory->mask].key, key, memory_order_release);
    directory->count++;
}

/* Returns a directory with room for one more chunk; NULL without host memory. */
static struct pool_directory *cells_grow_directory(lochi_pool *pool)
{
    struct pool_directory *old = atomic_load_explicit(&pool->directory, memory_order_relaxed);
    if (old && old->count * 2 <= old->mask) return old;
    const size_t places = old ? 2 * (old->mask + 1) : 16;
    struct pool_directory *grown = lochi_zalloc(sizeof *grown + places * sizeof grown->places[0]);
    if (!grown) return NULL;
    grown->mask = places - 1;
    grown->old = old;
    for (size_t i = 0; old && i <= old->mask; i++) {
        const uintptr_t key = atomic_load_explicit(&old->places[i].key, memory_order_relaxed);
        if (key) cells_enter_chunk(grown, key, atomic_load_explicit(&old->places[i].chunk, memory_order_relaxed));
    }
    atomic_store_explicit(&pool->directory, grown, memory_order_release);
    return grown;
}

static loch_status cells_make_chunk(lochi_pool *pool, uintptr_t address)
{
    if (lochi_pool_find_cell(pool, address)) return LOCH_OK;
    pool_chunk *chunk = lochi_zalloc(sizeof *chunk);
    if (!chunk) return LOCH_FAIL(HOST_MEMORY, "no host memory for the table of handles");
    const unsigned shift = pool->policy.cell_shift + POOL_CHUNK_SHIFT;
    if (pool->policy.is_virtual && address - pool->base < pool->span) {
        atomic_store_explicit(&pool->chunks[(address - pool->base) >> shift], chunk, memory_order_release);
        return LOCH_OK;
    }
    pool_annex *annex = pool->policy.is_virtual ? lochi_pool_find_annex(pool, address) : NULL;
    struct pool_directory *directory = annex ? NULL : cells_grow_directory(pool);
    if (annex ? !cells_enter_annex(pool, annex, address, chunk) : !directory) {
        lochi_free(chunk);
        return LOCH_FAIL(HOST_MEMORY, "no host memory for the table of handles");
    }
    if (!annex) cells_enter_chunk(directory, (address >> shift) + 1, chunk);
    return LOCH_OK;
}

loch_status lochi_pool_make_cells(lochi_pool *pool, uintptr_t start, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    const size_t step = (size_t)1 << (pool->policy.cell_shift + POOL_CHUNK_SHIFT);
    uintptr_t origin = pool->policy.is_virtual ? pool->base : 0; /* a reservation starts at any cell */
    if (pool->policy.is_virtual && start - pool->base >= pool->span)
        origin = lochi_pool_find_annex(pool, start)->node.key;
    for (uintptr_t at = start; at < start + bytes; at = origin + ((at - origin) & ~(step - 1)) + step)
        LOCH_TRY_RETURN(cells_make_chunk(pool, at));
    return LOCH_OK;
}

void lochi_pool_set_cells(lochi_pool *pool, uintptr_t start, size_t bytes, pool_handle *handle)
{
    lochi_lock_assert_held(&pool->lock);
    const uintptr_t first = start & ~(uintptr_t)(pool->cell_bytes - 1); /* the range of a child starts anywhere */
    for (uintptr_t at = first; at < start + bytes; at += pool->cell_bytes)
        lochi_pool_find_cell(pool, at)->handle = handle;
}

bool lochi_pool_open_cells(lochi_pool *pool)
{
    pool->chunks = lochi_zalloc(cells_count(pool, pool->span) * sizeof *pool->chunks);
    return pool->chunks;
}

static void cells_free_chunk(pool_chunk *chunk)
{
    for (size_t i = 0; chunk && i < POOL_CHUNK_CELLS; i++)
        lochi_free((void *)atomic_load_explicit(&chunk->cells[i].pages, memory_order_relaxed));
    lochi_free(chunk);
}

void lochi_pool_close_cells(lochi_pool *pool)
{
    if (pool->policy.is_virtual) {
        const size_t chunks = pool->chunks ? cells_count(pool, pool->span) : 0;
        for (size_t i = 0; i < chunks; i++)
            cells_free_chunk(atomic_load_explicit(&pool->chunks[i], memory_order_relaxed));
        lochi_free((void *)pool->chunks);
        return;
    }
    struct pool_directory *directory = atomic_load_explicit(&pool->directory, memory_order_relaxed);
    for (size_t i = 0; directory && i <= directory->mask; i++)
        cells_free_chunk(atomic_load_explicit(&directory->places[i].chunk, memory_order_relaxed));
    while (directory) {
        struct pool_directory *old = directory->old;
        lochi_free(directory);
        directory = old;
    }
}

/* --- handles by address --- */

pool_handle *lochi_pool_find_whole(lochi_pool *pool, uintptr_t start, uintptr_t end)
{
    lochi_lock_assert_held(&pool->lock);
    uintptr_t at = lochi_pool_round(pool, start);
    while (at < end && end - at >= pool->smallest) {
        pool_handle *handle = lochi_pool_find_cell(pool, at)->handle;
        const uintptr_t handle_end = handle->at + handle->bytes;
        if (handle->at == at && handle_end <= end && handle->mappings == 1) return handle;
        at = handle_end;
    }
    return NULL;
}

pool_handle *lochi_pool_find_whole_under(lochi_pool *pool, const pool_block *block, uintptr_t start, uintptr_t end)
{
    const pool_handle *first = lochi_pool_find_handle(pool, block->start),
                      *last = lochi_pool_find_handle(pool, block->start + block->bytes - 1);
    if (first->at > start) start = first->at;
    if (last->at + last->bytes < end) end = last->at + last->bytes;
    return lochi_pool_find_whole(pool, start, end);
}

bool lochi_pool_sleeps_in(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    for (uintptr_t at = start; at < start + bytes;) {
        const pool_handle *handle = lochi_pool_find_handle(pool, at);
        if (lochi_pool_is_asleep(handle)) return true;
        at = lochi_pool_find_end(pool, handle, at);
    }
    return false;
}
