/* SPDX-License-Identifier: MIT */
/* A pool's addresses and handles: the reservation and its cells, raw segments, creating, mapping, moving and giving back.
 * Where memory goes is decided in place.c. Everything is under the pool's lock, but for the ways from an address to
 * its block. */
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "base/space.h"
#include "memory/pool/handle.h"
#include <string.h>

#define HANDLE_SPAN_FACTOR 8 /* addresses for each byte of the device, so that best fit has room */
#define HANDLE_SPAN_MAX ((size_t)1 << 42)
#define HANDLE_ALIGNED_FROM 4 /* chunks: aligning a smaller reservation would take a large part of the addresses */
#define HANDLE_ROOM_PART 4    /* of the addresses that a limited process has left */
#define HANDLE_TABLE_PART (POOL_PAGE / sizeof(uintptr_t)) /* of the addresses is what their table of pages takes */
#define HANDLE_WIDE_POOLS 16 /* of the process; those beyond take less, so that addresses last for hundreds */

/* --- chunks of cells --- */

/* Chunks of raw segments, which lie anywhere: a hash table that grows by being replaced, because it is read without a
 * lock. Old ones are kept until the end. */
struct pool_directory {
    struct pool_directory *old;
    size_t mask, count;
    struct {
        _Atomic uintptr_t key; /* number of the chunk, plus 1 */
        _Atomic(pool_chunk *) chunk;
    } places[];
};

static size_t handle_hash(uintptr_t key)
{
    return (size_t)((uint64_t)key * 0x9e3779b97f4a7c15u >> 32);
}

pool_chunk *lochi_pool_find_raw_chunk(const lochi_pool *pool, uintptr_t address)
{
    struct pool_directory *directory = atomic_load_explicit(&pool->directory, memory_order_acquire);
    const uintptr_t key = (address >> (pool->cell_shift + POOL_CHUNK_SHIFT)) + 1;
    if (!directory) return NULL;
    for (size_t i = handle_hash(key);; i++) {
        const uintptr_t found = atomic_load_explicit(&directory->places[i & directory->mask].key, memory_order_acquire);
        if (found == key)
            return atomic_load_explicit(&directory->places[i & directory->mask].chunk, memory_order_acquire);
        if (!found) return NULL;
    }
}

static void handle_enter_chunk(struct pool_directory *directory, uintptr_t key, pool_chunk *chunk)
{
    size_t i = handle_hash(key);
    while (atomic_load_explicit(&directory->places[i & directory->mask].key, memory_order_relaxed))
        i++;
    atomic_store_explicit(&directory->places[i & directory->mask].chunk, chunk, memory_order_relaxed);
    atomic_store_explicit(&directory->places[i & directory->mask].key, key, memory_order_release);
    directory->count++;
}

/* A directory with room for one more chunk. */
static struct pool_directory *handle_grow_directory(lochi_pool *pool)
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
        if (key) handle_enter_chunk(grown, key, atomic_load_explicit(&old->places[i].chunk, memory_order_relaxed));
    }
    atomic_store_explicit(&pool->directory, grown, memory_order_release);
    return grown;
}

static loch_status handle_make_chunk(lochi_pool *pool, uintptr_t address)
{
    if (lochi_pool_find_cell(pool, address)) return LOCH_OK;
    pool_chunk *chunk = lochi_zalloc(sizeof *chunk);
    if (!chunk) return LOCH_FAIL(HOST_MEMORY, "no host memory to note what is mapped");
    const unsigned shift = pool->cell_shift + POOL_CHUNK_SHIFT;
    if (pool->is_virtual) {
        atomic_store_explicit(&pool->chunks[(address - pool->base) >> shift], chunk, memory_order_release);
        return LOCH_OK;
    }
    struct pool_directory *directory = handle_grow_directory(pool);
    if (!directory) {
        lochi_free(chunk);
        return LOCH_FAIL(HOST_MEMORY, "no host memory to note what is mapped");
    }
    handle_enter_chunk(directory, (address >> shift) + 1, chunk);
    return LOCH_OK;
}

loch_status lochi_pool_make_cells(lochi_pool *pool, uintptr_t start, size_t bytes)
{
    const size_t step = (size_t)1 << (pool->cell_shift + POOL_CHUNK_SHIFT);
    const uintptr_t origin = pool->is_virtual ? pool->base : 0; /* a reservation begins at any cell */
    for (uintptr_t at = start; at < start + bytes; at = origin + ((at - origin) & ~(step - 1)) + step)
        LOCH_TRY_RETURN(handle_make_chunk(pool, at));
    return LOCH_OK;
}

static void handle_free_chunk(pool_chunk *chunk)
{
    for (size_t i = 0; chunk && i < POOL_CHUNK_CELLS; i++)
        lochi_free((void *)atomic_load_explicit(&chunk->cells[i].pages, memory_order_relaxed));
    lochi_free(chunk);
}

/* --- pages --- */

static size_t handle_page_index(const lochi_pool *pool, uintptr_t address)
{
    return (address & (pool->cell_bytes - 1)) >> POOL_PAGE_SHIFT;
}

uintptr_t lochi_pool_find_raw_page(const lochi_pool *pool, uintptr_t address)
{
    pool_cell *cell = lochi_pool_find_cell(pool, address);
    _Atomic uintptr_t *pages = cell ? atomic_load_explicit(&cell->pages, memory_order_acquire) : NULL;
    return pages ? atomic_load_explicit(&pages[handle_page_index(pool, address)], memory_order_acquire) : 0;
}

loch_status lochi_pool_prepare_pages(lochi_pool *pool, uintptr_t start, size_t bytes)
{
    if (pool->is_virtual) return LOCH_OK;
    for (uintptr_t at = start; at < start + bytes; at = (at & ~(pool->cell_bytes - 1)) + pool->cell_bytes) {
        pool_cell *cell = lochi_pool_find_cell(pool, at);
        if (atomic_load_explicit(&cell->pages, memory_order_relaxed)) continue;
        _Atomic uintptr_t *pages = lochi_pool_make_cell_pages(pool);
        if (!pages) return LOCH_FAIL(HOST_MEMORY, "no host memory to note where blocks start");
        atomic_store_explicit(&cell->pages, pages, memory_order_release);
    }
    return LOCH_OK;
}

/* --- addresses --- */

static atomic_size_t handle_reservations; /* of all pools */

/* Counts the reservation in. */
static size_t handle_choose_span(const lochi_pool *pool)
{
    const size_t chunk = pool->cell_bytes << POOL_CHUNK_SHIFT, total = pool->device->properties.total_bytes;
    const size_t others = atomic_fetch_add(&handle_reservations, 1);
    const size_t factor = others < HANDLE_WIDE_POOLS ? HANDLE_SPAN_FACTOR : 1;
    size_t span = total > HANDLE_SPAN_MAX / factor ? HANDLE_SPAN_MAX : total * factor;
    if (span < total) span = total; /* larger than the largest */
#if LOCHI_TSAN
    /* It leaves the process little address space, which a few pools would fill. */
    const size_t most = (size_t)(others < HANDLE_WIDE_POOLS / 2 ? 32 : 2) << 30;
    if (loch_device_can(pool->device, LOCH_CAN_HOST_ACCESS) && span > most) span = most;
#elif defined(LOCHI_SPAN_MAX)
    /* A build for an emulator, which pays for every page of addresses. */
    if (loch_device_can(pool->device, LOCH_CAN_HOST_ACCESS) && span > LOCHI_SPAN_MAX) span = LOCHI_SPAN_MAX;
#endif
    span = (span + chunk - 1) / chunk * chunk;
    /* A process with a limit on its addresses needs them for other things, too, and for further pools. */
    const size_t room = lochi_address_room();
    if (room == SIZE_MAX) return span;
    const size_t share = room / HANDLE_ROOM_PART;
    if (loch_device_can(pool->device, LOCH_CAN_HOST_ACCESS) && span > share) span = share;
    if (span / HANDLE_TABLE_PART > share) span = share * HANDLE_TABLE_PART;
    return span;
}

/* Bytes of the table of pages of a reservation, and of the bits behind it. */
static size_t handle_table_bytes(const lochi_pool *pool, size_t span)
{
    const size_t pages = span >> POOL_PAGE_SHIFT;
    return pages * sizeof *pool->pages + lochi_pool_count_starts(pages) * sizeof *pool->starts[0];
}

/* Addresses for the blocks, and memory for the table of their pages; or neither. Says whether less might do. */
static loch_status handle_try_reserve(lochi_pool *pool, size_t span, bool *is_too_much)
{
    const size_t chunk = pool->cell_bytes << POOL_CHUNK_SHIFT;
    const size_t alignment = span >= HANDLE_ALIGNED_FROM * chunk ? chunk : pool->cell_bytes;
    void *base = NULL;
    const loch_status status = loch_virtual_reserve(pool->device, span, alignment, &base);
    *is_too_much = status == LOCH_E_DEVICE_MEMORY;
    if (status != LOCH_OK) return status;
    pool->pages = lochi_map(handle_table_bytes(pool, span));
    if (!pool->pages) {
        if (loch_virtual_unreserve(base) != LOCH_OK) LOCHI_LOG(ERROR, "%zu bytes of addresses are lost", span);
        *is_too_much = true;
        return LOCH_FAIL(HOST_MEMORY, "no host memory for a pool's addresses");
    }
    pool->base = (uintptr_t)base;
    pool->span = span;
    lochi_ranges_let(base, &pool->tenant);
    return LOCH_OK;
}

/* Reserves as much as the process gets. */
static loch_status handle_reserve(lochi_pool *pool)
{
    size_t span = handle_choose_span(pool) & ~(pool->cell_bytes - 1);
    if (span < pool->cell_bytes) span = pool->cell_bytes;
    bool is_too_much;
    loch_status status = handle_try_reserve(pool, span, &is_too_much);
    while (status != LOCH_OK && is_too_much && span > pool->cell_bytes) {
        span = lochi_pool_round(pool, span / 2);
        status = handle_try_reserve(pool, span, &is_too_much);
    }
    if (status != LOCH_OK) atomic_fetch_sub(&handle_reservations, 1);
    return status;
}

/* Chunks of cells that the reservation begins. */
static size_t handle_count_chunks(const lochi_pool *pool)
{
    const unsigned shift = pool->cell_shift + POOL_CHUNK_SHIFT;
    return (pool->span + ((size_t)1 << shift) - 1) >> shift;
}

loch_status lochi_pool_open_place(lochi_pool *pool)
{
    if (!pool->is_virtual) return LOCH_OK;
    LOCH_TRY_RETURN(handle_reserve(pool));
    pool->chunks = lochi_zalloc(handle_count_chunks(pool) * sizeof *pool->chunks);
    if (!pool->chunks || !lochi_pool_stock_records(pool, 1))
        return LOCH_FAIL(HOST_MEMORY, "no host memory for a pool's addresses");
    const size_t pages = pool->span >> POOL_PAGE_SHIFT;
    lochi_pool_open_starts(pool, (_Atomic uint64_t *)(pool->pages + pages), pages);
    pool_block *all = lochi_pool_take_record(pool);
    all->start = pool->base;
    all->bytes = pool->span;
    all->before = all->behind = NULL;
    pool->first = all;
    lochi_pool_make_bare(pool, all);
    return LOCH_OK;
}

void lochi_pool_close_place(lochi_pool *pool)
{
    if (pool->is_virtual) {
        const size_t chunks = pool->chunks ? handle_count_chunks(pool) : 0;
        for (size_t i = 0; i < chunks; i++)
            handle_free_chunk(atomic_load_explicit(&pool->chunks[i], memory_order_relaxed));
        lochi_free((void *)pool->chunks);
        if (pool->span) lochi_ranges_let((void *)pool->base, NULL); /* a mapping that was lost may stay behind */
        lochi_unmap((void *)pool->pages, handle_table_bytes(pool, pool->span));
        if (!pool->span) return;
        atomic_fetch_sub(&handle_reservations, 1);
        const loch_status status = loch_virtual_unreserve((void *)pool->base);
        if (status != LOCH_OK) LOCHI_LOG(ERROR, "a pool's addresses are lost: %s", loch_error_get()->sentence);
        return;
    }
    struct pool_directory *directory = atomic_load_explicit(&pool->directory, memory_order_relaxed);
    for (size_t i = 0; directory && i <= directory->mask; i++)
        handle_free_chunk(atomic_load_explicit(&directory->places[i].chunk, memory_order_relaxed));
    while (directory) {
        struct pool_directory *old = directory->old;
        lochi_free(directory);
        directory = old;
    }
}

/* --- handles --- */

static void handle_link(pool_handle **list, pool_handle *handle)
{
    handle->prev = NULL;
    handle->next = *list;
    if (*list) (*list)->prev = handle;
    *list = handle;
}

static void handle_unlink(pool_handle **list, pool_handle *handle)
{
    if (handle->prev)
        handle->prev->next = handle->next;
    else
        *list = handle->next;
    if (handle->next) handle->next->prev = handle->prev;
}

void lochi_pool_set_cells(lochi_pool *pool, uintptr_t start, size_t bytes, pool_handle *handle)
{
    const uintptr_t first = start & ~(uintptr_t)(pool->cell_bytes - 1); /* a child's range begins anywhere */
    for (uintptr_t at = first; at < start + bytes; at += pool->cell_bytes)
        lochi_pool_find_cell(pool, at)->handle = handle;
}

static void handle_count(lochi_pool *pool, size_t bytes)
{
    pool->reserved += bytes;
    if (pool->reserved > pool->peak_reserved) pool->peak_reserved = pool->reserved;
    pool->handles_count++;
    pool->handles_created++;
    pool->batch = (int64_t)(pool->reserved >> 8) + ((int64_t)256 << 10);
}

static void handle_uncount(lochi_pool *pool, size_t bytes)
{
    pool->reserved -= bytes;
    pool->handles_count--;
    pool->handles_released++;
    if (pool->is_related) lochi_family_unclaim(pool, bytes);
}

loch_status lochi_pool_check_limit(lochi_pool *pool, size_t bytes)
{
    if (pool->is_related) return bytes <= lochi_family_room(pool) ? LOCH_OK : lochi_pool_fail_limit(pool, bytes);
    if (!pool->limit || (bytes <= pool->limit && pool->reserved <= pool->limit - bytes)) return LOCH_OK;
    return lochi_pool_fail_limit(pool, bytes);
}

/* The same, and counts them in for the pool's family: before the memory is there, so that nobody else takes the room. */
static loch_status handle_claim(lochi_pool *pool, size_t bytes)
{
    if (!pool->is_related) return lochi_pool_check_limit(pool, bytes);
    return lochi_family_claim(pool, bytes) ? LOCH_OK : lochi_pool_fail_limit(pool, bytes);
}

/* Nothing came of it. */
static void handle_unclaim(lochi_pool *pool, size_t bytes)
{
    if (pool->is_related) lochi_family_unclaim(pool, bytes);
}

/* A bare block's [start, start + bytes) becomes a block of its own, in no list. Two records are stocked. */
pool_block *lochi_pool_take_bare(lochi_pool *pool, pool_block *bare, uintptr_t start, size_t bytes)
{
    lochi_pool_bins_remove(&pool->bare, bare);
    if (start > bare->start) {
        pool_block *front = bare;
        bare = lochi_pool_split(pool, front, start);
        lochi_pool_bins_add(&pool->bare, front);
    }
    if (bare->bytes > bytes) lochi_pool_bins_add(&pool->bare, lochi_pool_split(pool, bare, start + bytes));
    return bare;
}

static void handle_settle_later(lochi_pool *pool, pool_block *block, pool_lane *lane, uint64_t epoch)
{
    block->lane = lane;
    block->is_captured = lane->capture != 0;
    block->epoch = epoch;
    lochi_pool_set_state(block, POOL_USED);
    lochi_pool_enlist(&pool->filled, block);
}

/* Memory is under a part of a bare block now. It becomes free, and what it left bare, when all moves of a plan are done
 * (lochi_pool_settle): until then no record of a neighbour disappears by merging. */
static void handle_fill(lochi_pool *pool, pool_handle *handle, pool_block *bare, uintptr_t at, pool_lane *lane,
                        uint64_t epoch)
{
    handle->at = at;
    lochi_pool_set_cells(pool, at, handle->bytes, handle);
    lochi_pool_hide(pool, at, handle->bytes);
    handle_settle_later(pool, lochi_pool_take_bare(pool, bare, at, handle->bytes), lane, epoch);
}

static void handle_fade(lochi_pool *pool, pool_block *block)
{
    block->list_next = NULL;
    block->list_link = pool->fading_end;
    *pool->fading_end = block;
    pool->fading_end = &block->list_next;
    pool->fading_count++;
    pool->fading_bytes += block->bytes;
}

static void handle_unfade(lochi_pool *pool, pool_block *block)
{
    if (!block->list_next) pool->fading_end = block->list_link;
    lochi_pool_unlist(block);
    pool->fading_count--;
    pool->fading_bytes -= block->bytes;
}

void lochi_pool_settle(lochi_pool *pool)
{
    while (pool->filled) {
        pool_block *block = pool->filled;
        lochi_pool_unlist(block);
        lochi_pool_make_free(pool, block, block->epoch);
    }
    while (pool->vacated) {
        pool_block *block = pool->vacated;
        lochi_pool_unlist(block);
        lochi_pool_make_bare(pool, block);
    }
}

/* What mapping at an address needs of the host. */
static loch_status handle_prepare(lochi_pool *pool, uintptr_t at, size_t bytes)
{
    if (!lochi_pool_stock_records(pool, 6)) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a block");
    return lochi_pool_make_cells(pool, at, bytes);
}

loch_status lochi_pool_create_handle(lochi_pool *pool, size_t bytes, pool_handle **out)
{
    pool_handle *handle = lochi_zalloc(sizeof *handle);
    if (!handle) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a handle");
    const loch_handle_options *options = pool->options.handle.size ? &pool->options.handle : NULL;
    loch_status status = handle_claim(pool, bytes);
    if (status == LOCH_OK) {
        status = loch_handle_create(pool->device, bytes, options, &handle->handle);
        if (status != LOCH_OK) handle_unclaim(pool, bytes);
    }
    if (status != LOCH_OK) {
        lochi_free(handle);
        return status;
    }
    handle->bytes = bytes;
    handle_count(pool, bytes);
    handle_link(&pool->loose, handle);
    pool->loose_bytes += bytes;
    *out = handle;
    return LOCH_OK;
}

loch_status lochi_pool_create_some(lochi_pool *pool, size_t bytes, pool_handle **out)
{
    loch_status status = lochi_pool_create_handle(pool, bytes, out);
    while ((status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT) && bytes > pool->cell_bytes) {
        bytes = lochi_pool_round(pool, bytes / 2);
        status = lochi_pool_create_handle(pool, bytes, out);
    }
    return status;
}

loch_status lochi_pool_map_loose(lochi_pool *pool, pool_handle *handle, uintptr_t at)
{
    LOCH_TRY_RETURN(handle_prepare(pool, at, handle->bytes));
    LOCH_TRY_RETURN(loch_virtual_map((void *)at, handle->handle, pool->peers, pool->peers_count));
    handle_unlink(&pool->loose, handle);
    pool->loose_bytes -= handle->bytes;
    handle_link(&pool->handles, handle);
    handle->mappings = 1;
    return LOCH_OK;
}

loch_status lochi_pool_map_free(lochi_pool *pool, pool_handle *handle, pool_block *bare, uintptr_t at, pool_lane *lane)
{
    LOCH_TRY_RETURN(lochi_pool_map_loose(pool, handle, at));
    handle_fill(pool, handle, bare, at, lane, 0);
    return LOCH_OK;
}

/* The part of a free block that a handle lies under becomes a block of its own, in no list. */
static pool_block *handle_cut_free(lochi_pool *pool, pool_block *block, const pool_handle *handle)
{
    pool_lane *lane = block->lane;
    lochi_pool_bins_remove(&lane->bins, block);
    if (handle->at > block->start) {
        pool_block *front = block;
        block = lochi_pool_split(pool, front, handle->at);
        lochi_pool_bins_add(&lane->bins, front);
    }
    if (block->bytes > handle->bytes)
        lochi_pool_bins_add(&lane->bins, lochi_pool_split(pool, block, handle->at + handle->bytes));
    return block;
}

/* The part of a free block that a handle lies under becomes a block of its own, in no list, that merges with nothing. */
static pool_block *handle_detach(lochi_pool *pool, pool_block *block, const pool_handle *handle)
{
    lochi_pool_set_cells(pool, handle->at, handle->bytes, NULL);
    block = handle_cut_free(pool, block, handle);
    lochi_pool_set_state(block, POOL_FADING);
    return block;
}

/* Unmaps a handle that is mapped once; it is loose then. */
static loch_status handle_unmap(lochi_pool *pool, pool_handle *handle)
{
    lochi_pool_show(pool, handle->at, handle->bytes);
    LOCH_TRY_RETURN(loch_virtual_unmap((void *)handle->at));
    handle->mappings = 0;
    handle_unlink(&pool->handles, handle);
    handle_link(&pool->loose, handle);
    pool->loose_bytes += handle->bytes;
    return LOCH_OK;
}

loch_status lochi_pool_unmap_loose(lochi_pool *pool, pool_handle *handle)
{
    LOCH_TRY_RETURN(handle_unmap(pool, handle));
    lochi_pool_set_cells(pool, handle->at, handle->bytes, NULL);
    return LOCH_OK;
}

bool lochi_pool_may_move(const lochi_pool *pool, const pool_block *block, const pool_lane *lane)
{
    if (lochi_pool_has_passed(block->lane, block->epoch)) return true;
    return block->lane == lane && loch_device_can(pool->device, LOCH_CAN_ALIAS);
}

loch_status lochi_pool_unmap_free(lochi_pool *pool, pool_handle *handle, pool_block *block)
{
    if (handle->mappings > 1) return LOCH_FAIL(BUSY, "an old address of the handle is still in use");
    if (!lochi_pool_stock_records(pool, 4)) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a block");
    LOCH_TRY_RETURN(handle_unmap(pool, handle));
    lochi_pool_make_bare(pool, handle_detach(pool, block, handle));
    return LOCH_OK;
}

/* Two mappings of one handle for a while: the old one fades. */
static loch_status handle_alias(lochi_pool *pool, pool_handle *handle, pool_block *block, pool_block *bare,
                                uintptr_t at, pool_lane *lane)
{
    const bool has_passed = lochi_pool_has_passed(block->lane, block->epoch);
    const uint64_t epoch = block->epoch;
    LOCH_TRY_RETURN(loch_virtual_map((void *)at, handle->handle, pool->peers, pool->peers_count));
    pool_block *old = handle_detach(pool, block, handle);
    old->handle = handle;
    old->epoch =
        has_passed ? 0 : old->lane->epoch; /* the lane's stream may still use it: the present epoch has to pass */
    handle_fade(pool, old);
    handle->mappings++;
    handle_fill(pool, handle, bare, at, lane, has_passed ? 0 : epoch);
    return LOCH_OK;
}

loch_status lochi_pool_revive(lochi_pool *pool, pool_block *fading, pool_block *home, pool_lane *lane)
{
    if (!lochi_pool_stock_records(pool, 4)) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a block");
    pool_handle *handle = fading->handle;
    const bool has_passed = lochi_pool_has_passed(home->lane, home->epoch);
    const uint64_t epoch = home->epoch;
    pool_block *old = handle_detach(pool, home, handle);
    old->handle = handle;
    old->epoch = has_passed ? 0 : old->lane->epoch;
    handle_fade(pool, old);
    handle_unfade(pool, fading);
    fading->slab = NULL;
    handle->at = fading->start;
    lochi_pool_set_cells(pool, fading->start, fading->bytes, handle);
    handle_settle_later(pool, fading, lane, has_passed ? 0 : epoch);
    pool->handles_revived++;
    return LOCH_OK;
}

/* The handle is at one address after the other. */
static loch_status handle_transfer(lochi_pool *pool, pool_handle *handle, pool_block *block, pool_block *bare,
                                   uintptr_t at, pool_lane *lane)
{
    const uintptr_t from = handle->at;
    if (loch_device_can(pool->device, LOCH_CAN_REMAP)) {
        lochi_pool_show(pool, from, handle->bytes);
        LOCH_TRY_RETURN(loch_virtual_remap((void *)from, (void *)at));
    } else {
        LOCH_TRY_RETURN(handle_unmap(pool, handle));
        const loch_status status = lochi_pool_map_loose(pool, handle, at);
        if (status != LOCH_OK) { /* it is loose now, and serves the next request */
            lochi_pool_enlist(&pool->vacated, handle_detach(pool, block, handle));
            return status;
        }
    }
    handle->at = from;
    lochi_pool_enlist(&pool->vacated, handle_detach(pool, block, handle));
    handle_fill(pool, handle, bare, at, lane, 0);
    return LOCH_OK;
}

loch_status lochi_pool_move_free(lochi_pool *pool, pool_handle *handle, pool_block *block, pool_block *bare,
                                 uintptr_t at, pool_lane *lane)
{
    LOCH_TRY_RETURN(handle_prepare(pool, at, handle->bytes));
    LOCH_TRY_RETURN(loch_device_can(pool->device, LOCH_CAN_ALIAS)
                        ? handle_alias(pool, handle, block, bare, at, lane)
                        : handle_transfer(pool, handle, block, bare, at, lane));
    pool->handles_moved++;
    return LOCH_OK;
}

void lochi_pool_drop_faded(lochi_pool *pool, size_t keep)
{
    for (pool_block *block = pool->fading, *next; block; block = next) {
        if (pool->fading_count <= keep && pool->fading_bytes <= pool->span / 4) return;
        next = block->list_next;
        if (!lochi_pool_has_passed(block->lane, block->epoch)) continue;
        if (loch_virtual_unmap((void *)block->start) != LOCH_OK) continue; /* tried again later */
        block->handle->mappings--;
        handle_unfade(pool, block);
        lochi_pool_make_bare(pool, block);
    }
}

void lochi_pool_destroy_loose(lochi_pool *pool, pool_handle *handle)
{
    handle_unlink(&pool->loose, handle);
    pool->loose_bytes -= handle->bytes;
    handle_uncount(pool, handle->bytes);
    loch_handle_destroy(handle->handle);
    lochi_free(handle);
}

loch_status lochi_pool_destroy_free(lochi_pool *pool, pool_handle *handle, pool_block *block)
{
    if (handle->mappings > 1) return LOCH_FAIL(BUSY, "an old address of the handle is still in use");
    if (!lochi_pool_stock_records(pool, 4)) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a block");
    lochi_pool_show(pool, handle->at, handle->bytes);
    loch_handle_destroy(handle->handle); /* before the unmapping: the CPU need not park the pages then */
    const loch_status status = loch_virtual_unmap((void *)handle->at);
    pool_block *old = handle_detach(pool, block, handle);
    if (status == LOCH_OK)
        lochi_pool_make_bare(pool, old);
    else /* stays as it is: those addresses are never used again */
        LOCHI_LOG(ERROR, "%zu bytes at %p are lost: %s", handle->bytes, (void *)handle->at, loch_error_get()->sentence);
    handle_unlink(&pool->handles, handle);
    handle_uncount(pool, handle->bytes);
    lochi_free(handle);
    return status;
}

/* --- sleeping --- */

loch_status lochi_pool_lay_down(lochi_pool *pool, pool_handle *handle)
{
    lochi_pool_show(pool, handle->at, handle->bytes);
    LOCH_TRY_RETURN(loch_virtual_unmap((void *)handle->at)); /* first: it may fail, and the contents stay then */
    loch_handle_destroy(handle->handle);
    handle->handle = NULL;
    handle->mappings = 0;
    handle_unlink(&pool->handles, handle);
    handle_link(&pool->asleep, handle);
    handle_uncount(pool, handle->bytes);
    pool->asleep_bytes += handle->bytes;
    return LOCH_OK;
}

loch_status lochi_pool_get_up(lochi_pool *pool, pool_handle *handle)
{
    LOCH_TRY_RETURN(handle_claim(pool, handle->bytes));
    const loch_handle_options *options = pool->options.handle.size ? &pool->options.handle : NULL;
    loch_status status = loch_handle_create(pool->device, handle->bytes, options, &handle->handle);
    if (status == LOCH_OK) {
        status = loch_virtual_map((void *)handle->at, handle->handle, pool->peers, pool->peers_count);
        if (status != LOCH_OK) loch_handle_destroy(handle->handle);
    }
    if (status != LOCH_OK) {
        handle->handle = NULL;
        handle_unclaim(pool, handle->bytes);
        return status;
    }
    handle->mappings = 1;
    handle_unlink(&pool->asleep, handle);
    handle_link(&pool->handles, handle);
    handle_count(pool, handle->bytes);
    pool->asleep_bytes -= handle->bytes;
    lochi_pool_show(pool, handle->at, handle->bytes);
    return LOCH_OK;
}

void lochi_pool_forget_asleep(lochi_pool *pool, pool_handle *handle)
{
    lochi_pool_show(pool, handle->at, handle->bytes); /* blocks freed meanwhile were hidden */
    handle_unlink(&pool->asleep, handle);
    pool->asleep_bytes -= handle->bytes;
    lochi_free(handle);
}

/* --- raw segments --- */

/* Raw memory for a segment, which is counted in. */
static loch_status handle_get_raw(lochi_pool *pool, pool_handle *segment, size_t bytes)
{
    segment->raw_bytes = segment->bytes = bytes;
    LOCH_TRY_RETURN(handle_claim(pool, bytes));
    loch_status status = loch_raw_alloc(pool->device, pool->kind, bytes, pool->cell_bytes, &segment->raw);
    if (status != LOCH_OK) handle_unclaim(pool, bytes);
    if (status == LOCH_E_UNSUPPORTED) { /* the driver aligns less: more is taken */
        segment->raw_bytes = bytes + pool->cell_bytes;
        LOCH_TRY_RETURN(handle_claim(pool, segment->raw_bytes));
        status = loch_raw_alloc(pool->device, pool->kind, segment->raw_bytes, 0, &segment->raw);
        if (status != LOCH_OK) handle_unclaim(pool, segment->raw_bytes);
    }
    segment->at = ((uintptr_t)segment->raw + pool->cell_bytes - 1) & ~(uintptr_t)(pool->cell_bytes - 1);
    if (status == LOCH_OK) lochi_ranges_let(segment->raw, &pool->tenant);
    return status;
}

/* A segment's memory becomes one free block. Its cells exist, and a record is stocked. */
static void handle_enter_segment(lochi_pool *pool, pool_handle *segment, pool_lane *lane, uint64_t epoch)
{
    lochi_pool_set_cells(pool, segment->at, segment->bytes, segment);
    segment->mappings = 1;
    handle_link(&pool->handles, segment);
    handle_count(pool, segment->raw_bytes);
    pool_block *block = lochi_pool_take_record(pool);
    segment->first = block;
    block->start = segment->at;
    block->bytes = segment->bytes;
    block->before = block->behind = NULL;
    block->lane = lane;
    block->is_captured = lane->capture != 0;
    lochi_pool_hide(pool, block->start, block->bytes);
    lochi_pool_make_free(pool, block, epoch);
}

loch_status lochi_pool_take_segment(lochi_pool *pool, size_t bytes, pool_lane *lane)
{
    LOCH_TRY_RETURN(lochi_pool_check_limit(pool, bytes));
    if (!lochi_pool_stock_records(pool, 1)) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a block");
    pool_handle *segment = lochi_zalloc(sizeof *segment);
    if (!segment) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a segment");
    loch_status status;
    LOCH_TRY(handle_get_raw(pool, segment, bytes), fail);
    LOCH_TRY(lochi_pool_make_cells(pool, segment->at, bytes), fail_raw);
    handle_enter_segment(pool, segment, lane, 0);
    return LOCH_OK;
fail_raw:
    handle_unclaim(pool, segment->raw_bytes);
    lochi_ranges_let(segment->raw, NULL);
    if (loch_raw_free(segment->raw) != LOCH_OK) LOCHI_LOG(ERROR, "a raw segment is lost");
fail:
    lochi_free(segment);
    return status;
}

loch_status lochi_pool_adopt_range(lochi_pool *pool, size_t bytes, pool_lane *lane)
{
    if (!lochi_pool_stock_records(pool, 1)) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a block");
    LOCH_TRY_RETURN(lochi_pool_make_cells(pool, (uintptr_t)pool->range, bytes));
    pool_handle *segment = lochi_zalloc(sizeof *segment);
    if (!segment) return LOCH_FAIL(HOST_MEMORY, "no host memory to note a segment");
    segment->raw_bytes = segment->bytes = bytes;
    segment->at = (uintptr_t)pool->range;
    handle_enter_segment(pool, segment, lane, lane->epoch);
    lochi_pool_mark(pool, lane); /* others have it without a wait once that has passed */
    return LOCH_OK;
}

loch_status lochi_pool_drop_segment(lochi_pool *pool, pool_handle *segment, pool_block *block)
{
    lochi_pool_show(pool, segment->at, segment->bytes);
    LOCH_TRY_RETURN(loch_raw_free(segment->raw));
    lochi_pool_set_cells(pool, segment->at, segment->bytes, NULL);
    handle_unlink(&pool->handles, segment);
    handle_uncount(pool, segment->raw_bytes);
    lochi_free(segment);
    if (!block) return LOCH_OK;
    lochi_pool_bins_remove(&block->lane->bins, block);
    lochi_pool_drop_record(pool, block);
    return LOCH_OK;
}

pool_block *lochi_pool_next_block(const lochi_pool *pool, const pool_block *block)
{
    if (block && block->behind) return block->behind;
    if (pool->is_virtual) return block ? NULL : pool->first;
    const pool_handle *segment = block ? lochi_pool_find_cell(pool, block->start)->handle->next : pool->handles;
    return segment ? segment->first : NULL;
}

/* --- the end --- */

void lochi_pool_drop_all(lochi_pool *pool)
{
    for (pool_block *block = pool->fading; block; block = block->list_next) {
        const loch_status status = loch_virtual_unmap((void *)block->start);
        if (status != LOCH_OK) LOCHI_LOG(ERROR, "a mapping is lost: %s", loch_error_get()->sentence);
    }
    while (pool->loose)
        lochi_pool_destroy_loose(pool, pool->loose);
    while (pool->asleep)
        lochi_pool_forget_asleep(pool, pool->asleep);
    while (pool->handles) {
        pool_handle *handle = pool->handles;
        loch_status status = LOCH_OK;
        lochi_pool_show(pool, handle->at, handle->bytes);
        if (handle->handle) {
            loch_handle_destroy(handle->handle);
            status = loch_virtual_unmap((void *)handle->at);
        } else if (!pool->range) {
            lochi_ranges_let(handle->raw, NULL); /* it stays in the table if the driver refuses */
            status = loch_raw_free(handle->raw);
        }
        if (status != LOCH_OK) LOCHI_LOG(ERROR, "%zu bytes are lost: %s", handle->bytes, loch_error_get()->sentence);
        handle_unlink(&pool->handles, handle);
        lochi_free(handle);
    }
}
