/* SPDX-License-Identifier: MIT */
/* The table of pages: finds the block that contains an address, without the pool's lock. Frees find their block with
 * it; copies and fills are checked with it.
 *
 * The table has an entry only for the page in which a block starts. For addresses further inside a block there are
 * bits: one bit for each group of pages with an entry in it, one bit for each non-zero word of those bits, and so on up
 * to a single word. A group is the eight entries of one cache line: they are searched themselves, and the bits of many
 * large blocks share a line. So the last start before an address is found with a few loads, however large the block
 * is. In raw segments there is one bit for each page, and the bits of a cell lie behind its page entries.
 *
 * A lookup of an address inside a live block always finds that block, whatever other threads do: the block's page entry
 * does not change until it is freed, the bit of its group stays set as long as one of the group's entries leads to a
 * block, and no other block starts between its start and the address. The page entry contains the position of the start
 * in the page, so the record of no other block is read.
 *
 * An annex has one block and no table (annex.c). */
#include "memory/pool/heap/bounds.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/heap/cells.h"
#include "memory/pool/state/state.h"

#define BOUNDS_NONE SIZE_MAX
#define BOUNDS_BITS 64
#define BOUNDS_GROUP ((size_t)8) /* entries in a cache line of the table */
#define BOUNDS_LEVELS_MIN 2      /* levels that every pool has, so that most changes need no loop */

/* Tells whether a table entry leads to a block or slab. */
static bool bounds_leads(uintptr_t page)
{
    return page && !(page & POOL_IS_FREED);
}

/* --- bits --- */

/* Returns the number of words that a level with `count` bits needs. */
static size_t bounds_words(size_t count)
{
    return (count + BOUNDS_BITS - 1) / BOUNDS_BITS;
}

size_t lochi_pool_count_pages(size_t span)
{
    return ((span >> POOL_PAGE_SHIFT) + BOUNDS_GROUP - 1) & ~(BOUNDS_GROUP - 1);
}

size_t lochi_pool_count_starts(size_t pages)
{
    size_t words = 0, count = pages / BOUNDS_GROUP;
    for (size_t level = 0; level < BOUNDS_LEVELS_MIN || count > 1; level++)
        words += count = bounds_words(count);
    return words;
}

void lochi_pool_open_starts(lochi_pool *pool, _Atomic uint64_t *words, size_t pages)
{
    size_t level = 0, count = pages / BOUNDS_GROUP;
    while (level < BOUNDS_LEVELS_MIN || count > 1) {
        pool->starts[level++] = words;
        words += count = bounds_words(count);
    }
    pool->start_levels = level;
}

static uint64_t bounds_load(const _Atomic uint64_t *word)
{
    return atomic_load_explicit(word, memory_order_relaxed);
}

/* Finds the last page in [index, end) whose entry leads to a block or slab. */
static size_t bounds_find_entry(const lochi_pool *pool, size_t index, size_t end)
{
    while (end > index)
        if (bounds_leads(atomic_load_explicit(&pool->pages[--end], memory_order_relaxed))) return end;
    return BOUNDS_NONE;
}

#define BOUNDS_MARK_BITS (POOL_PAGE_SHIFT + 2)

_Static_assert(POOL_IS_FREED == 1, "the mark of a freed block is the lowest bit");
_Static_assert(POOL_MARK(POOL_PAGE - 1) < (uintptr_t)1 << BOUNDS_MARK_BITS, "the address of a record is larger");

typedef uintptr_t bounds_pair __attribute__((vector_size(2 * sizeof(uintptr_t)), may_alias));

/* Returns two entries of a group; 0 for marks of freed blocks. */
static bounds_pair bounds_lead_pair(bounds_pair pages)
{
    return pages & ((pages & POOL_IS_FREED) - 1);
}

/* Tells whether an entry of a group leads to a block or slab. No branches for single entries: the eight of them are in
 * one line. The lock holder is the only writer, so it may read them as they are. */
static bool bounds_has_any(const _Atomic uintptr_t *group)
{
    const uintptr_t *pages = (const uintptr_t *)group;
    const uintptr_t seen = pages[0] | pages[1] | pages[2] | pages[3] | pages[4] | pages[5] | pages[6] | pages[7];
    if (!(seen >> BOUNDS_MARK_BITS)) return false; /* only marks of large blocks */
    const bounds_pair *pairs = (const bounds_pair *)group;
    const bounds_pair leads = bounds_lead_pair(pairs[0]) | bounds_lead_pair(pairs[1]) | bounds_lead_pair(pairs[2]) |
                              bounds_lead_pair(pairs[3]);
    return (leads[0] | leads[1]) != 0;
}

/* Sets a bit of a level. Returns whether its word had a bit: then the levels above have theirs. Plain stores are enough
 * here and below, because the lock holder is the only writer. */
static inline bool bounds_set_bit(lochi_pool *pool, size_t level, size_t bit)
{
    _Atomic uint64_t *word = &pool->starts[level][bit / BOUNDS_BITS];
    const uint64_t before = bounds_load(word);
    atomic_store_explicit(word, before | (uint64_t)1 << bit % BOUNDS_BITS, memory_order_relaxed);
    return before;
}

/* Clears a bit of a level. Returns whether its word has another bit: then the levels above keep theirs. */
static inline bool bounds_clear_bit(lochi_pool *pool, size_t level, size_t bit)
{
    _Atomic uint64_t *word = &pool->starts[level][bit / BOUNDS_BITS];
    const uint64_t after = bounds_load(word) & ~((uint64_t)1 << bit % BOUNDS_BITS);
    atomic_store_explicit(word, after, memory_order_relaxed);
    return after;
}

/* Sets or clears a bit in the levels above the first two. */
static LOCHI_RARE void bounds_change_above(lochi_pool *pool, size_t bit, bool (*change)(lochi_pool *, size_t, size_t))
{
    bool is_done = false;
    for (size_t level = BOUNDS_LEVELS_MIN; level < pool->start_levels && !is_done; level++, bit /= BOUNDS_BITS)
        is_done = change(pool, level, bit);
}

/* Sets the bit of a group. */
static void bounds_set(lochi_pool *pool, size_t group)
{
    if (bounds_set_bit(pool, 0, group) || bounds_set_bit(pool, 1, group / BOUNDS_BITS)) return;
    bounds_change_above(pool, group / BOUNDS_BITS / BOUNDS_BITS, bounds_set_bit);
}

/* Clears the bit of a group if none of its entries leads to a block or slab. */
static void bounds_clear(lochi_pool *pool, size_t group)
{
    if (bounds_has_any(&pool->pages[group * BOUNDS_GROUP])) return;
    if (bounds_clear_bit(pool, 0, group) || bounds_clear_bit(pool, 1, group / BOUNDS_BITS)) return;
    bounds_change_above(pool, group / BOUNDS_BITS / BOUNDS_BITS, bounds_clear_bit);
}

static size_t bounds_highest(uint64_t bits)
{
    return (size_t)63 - (size_t)__builtin_clzll(bits);
}

/* Returns the bits of a word below `index`. */
static uint64_t bounds_below(const _Atomic uint64_t *words, size_t index)
{
    return bounds_load(&words[index / BOUNDS_BITS]) & (((uint64_t)1 << index % BOUNDS_BITS) - 1);
}

/* Finds the last group before `index` whose bit is set. */
static size_t bounds_find_group(const lochi_pool *pool, size_t index)
{
    for (size_t level = 0; level < pool->start_levels; level++, index /= BOUNDS_BITS) {
        uint64_t bits = bounds_below(pool->starts[level], index);
        if (!bits) continue;
        index = index / BOUNDS_BITS * BOUNDS_BITS + bounds_highest(bits);
        while (level--) {
            bits = bounds_load(&pool->starts[level][index]);
            if (!bits) return BOUNDS_NONE; /* freed meanwhile: the address is not in a live block */
            index = index * BOUNDS_BITS + bounds_highest(bits);
        }
        return index;
    }
    return BOUNDS_NONE;
}

/* Finds the last page before `index` whose entry leads to a block or slab. */
static size_t bounds_find_before(const lochi_pool *pool, size_t index)
{
    size_t group = index / BOUNDS_GROUP;
    const size_t found = bounds_find_entry(pool, group * BOUNDS_GROUP, index);
    if (found != BOUNDS_NONE) return found;
    group = bounds_find_group(pool, group);
    if (group == BOUNDS_NONE) return BOUNDS_NONE;
    return bounds_find_entry(pool, group * BOUNDS_GROUP, (group + 1) * BOUNDS_GROUP);
}

/* --- leads --- */

/* Notes the record of a block that was entered in the table of pages, or removes it. The last large block that was
 * entered has the lead of its range. */
static void bounds_lead_to(lochi_pool *pool, size_t offset, uintptr_t page)
{
    _Atomic uintptr_t *lead = &pool->leads[offset >> POOL_LEAD_SHIFT];
    const uintptr_t record = (uintptr_t)lochi_pool_page_block(page);
    if (record && !(record >> POOL_LEAD_BITS)) {
        atomic_store_explicit(lead, record | lochi_pool_lead_page(offset), memory_order_release);
    } else if (lochi_pool_find_lead(pool, offset)) {
        atomic_store_explicit(lead, 0, memory_order_relaxed);
    }
}

/* --- annexes --- */

/* Finds the block around an address in an annex; NULL for none. */
static pool_block *bounds_find_in_annex(const lochi_pool *pool, uintptr_t address)
{
    const pool_annex *annex = lochi_pool_find_annex(pool, address);
    pool_block *block = annex ? atomic_load_explicit(&annex->block, memory_order_relaxed) : NULL;
    return block && address - block->start < block->bytes ? block : NULL;
}

/* Returns what a table of pages would have: only the first page of an annex has an entry. */
uintptr_t lochi_pool_find_annex_page(const lochi_pool *pool, uintptr_t address)
{
    const pool_block *block = bounds_find_in_annex(pool, address);
    if (!block || address - block->start >= POOL_PAGE) return 0;
    return lochi_pool_state(block) == POOL_GROWABLE ? lochi_pool_page_of(block) : POOL_MARK(block->start);
}

/* --- pages --- */

static _Atomic uintptr_t *bounds_get_cell_pages(const lochi_pool *pool, uintptr_t address)
{
    pool_cell *cell = lochi_pool_find_cell(pool, address);
    return cell ? atomic_load_explicit(&cell->pages, memory_order_acquire) : NULL;
}

static _Atomic uint64_t *bounds_get_cell_bits(const lochi_pool *pool, _Atomic uintptr_t *pages)
{
    return (_Atomic uint64_t *)(pages + (pool->cell_bytes >> POOL_PAGE_SHIFT));
}

static size_t bounds_page_index(const lochi_pool *pool, uintptr_t address)
{
    return (address & (pool->cell_bytes - 1)) >> POOL_PAGE_SHIFT;
}

uintptr_t lochi_pool_find_raw_page(const lochi_pool *pool, uintptr_t address)
{
    pool_cell *cell = lochi_pool_find_cell(pool, address);
    _Atomic uintptr_t *pages = cell ? atomic_load_explicit(&cell->pages, memory_order_acquire) : NULL;
    return pages ? atomic_load_explicit(&pages[bounds_page_index(pool, address)], memory_order_acquire) : 0;
}

static _Atomic uintptr_t *bounds_make_cell_pages(const lochi_pool *pool)
{
    const size_t pages = pool->cell_bytes >> POOL_PAGE_SHIFT;
    return lochi_zalloc(pages * sizeof(uintptr_t) + bounds_words(pages) * sizeof(uint64_t));
}

loch_status lochi_pool_prepare_pages(lochi_pool *pool, uintptr_t start, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    if (pool->is_virtual) return LOCH_OK;
    for (uintptr_t at = start; at < start + bytes; at = (at & ~(pool->cell_bytes - 1)) + pool->cell_bytes) {
        pool_cell *cell = lochi_pool_find_cell(pool, at);
        if (atomic_load_explicit(&cell->pages, memory_order_relaxed)) continue;
        _Atomic uintptr_t *pages = bounds_make_cell_pages(pool);
        if (!pages) return LOCH_FAIL(HOST_MEMORY, "no host memory for the table of pages");
        atomic_store_explicit(&cell->pages, pages, memory_order_release);
    }
    return LOCH_OK;
}

_Static_assert(sizeof(_Atomic uintptr_t) == sizeof(_Atomic uint64_t), "the bits of a cell lie behind its pages");

static LOCHI_RARE void bounds_enter_raw(const lochi_pool *pool, uintptr_t address, uintptr_t value)
{
    _Atomic uintptr_t *pages = bounds_get_cell_pages(pool, address);
    const size_t index = (address & (pool->cell_bytes - 1)) >> POOL_PAGE_SHIFT;
    _Atomic uint64_t *word = &bounds_get_cell_bits(pool, pages)[index / BOUNDS_BITS];
    const uint64_t bit = (uint64_t)1 << index % BOUNDS_BITS, before = bounds_load(word);
    atomic_store_explicit(&pages[index], value, memory_order_release);
    atomic_store_explicit(word, bounds_leads(value) ? before | bit : before & ~bit, memory_order_relaxed);
}

void lochi_pool_enter_page(lochi_pool *pool, uintptr_t address, uintptr_t value)
{
    lochi_lock_assert_held(&pool->lock);
    if (LOCHI_UNLIKELY(!pool->is_virtual)) {
        bounds_enter_raw(pool, address, value);
        return;
    }
    const size_t offset = address - pool->base, index = offset >> POOL_PAGE_SHIFT;
    atomic_store_explicit(&pool->pages[index], value, memory_order_release);
    if (pool->leads) bounds_lead_to(pool, offset, value);
    if (bounds_leads(value))
        bounds_set(pool, index / BOUNDS_GROUP);
    else
        bounds_clear(pool, index / BOUNDS_GROUP);
}

/* Finds the last page of a raw segment before the page of `address` that has an entry. Returns its address, or 0. */
static uintptr_t bounds_find_raw_before(const lochi_pool *pool, uintptr_t address)
{
    const size_t in_cell = pool->cell_bytes >> POOL_PAGE_SHIFT;
    uintptr_t base = address & ~(uintptr_t)(pool->cell_bytes - 1);
    size_t past = (address - base) >> POOL_PAGE_SHIFT;
    for (; lochi_pool_find_cell(pool, base); base -= pool->cell_bytes, past = in_cell) {
        _Atomic uintptr_t *pages = bounds_get_cell_pages(pool, base);
        const _Atomic uint64_t *words = pages ? bounds_get_cell_bits(pool, pages) : NULL;
        for (size_t end = words ? past : 0; end; end = (end - 1) / BOUNDS_BITS * BOUNDS_BITS) {
            const size_t last = end - 1; /* highest candidate */
            const uint64_t bits = bounds_load(&words[last / BOUNDS_BITS]) << (63 - last % BOUNDS_BITS);
            if (bits) return base + ((last - (63 - bounds_highest(bits))) << POOL_PAGE_SHIFT);
        }
    }
    return 0;
}

static uintptr_t bounds_find_page_before(const lochi_pool *pool, uintptr_t address)
{
    if (!pool->is_virtual) return bounds_find_raw_before(pool, address);
    const size_t offset = address - pool->base;
    const size_t index = offset < pool->span ? bounds_find_before(pool, offset >> POOL_PAGE_SHIFT) : BOUNDS_NONE;
    return index == BOUNDS_NONE ? 0 : pool->base + (index << POOL_PAGE_SHIFT);
}

static uintptr_t bounds_start(uintptr_t page_address, uintptr_t page)
{
    return (page_address & ~(POOL_PAGE - 1)) + lochi_pool_page_offset(page);
}

uintptr_t lochi_pool_find_page_around(const lochi_pool *pool, uintptr_t address, uintptr_t *start)
{
    uintptr_t page = lochi_pool_find_page(pool, address), at = address;
    if (!bounds_leads(page) || (!(page & POOL_IS_SLAB) && bounds_start(at, page) > address)) {
        at = bounds_find_page_before(pool, address); /* no block starts in this page at or before the address */
        page = at ? lochi_pool_find_page(pool, at) : 0;
        if (page & (POOL_IS_FREED | POOL_IS_SLAB))
            return 0; /* every page of a slab has an entry, so the address is behind the slab */
    }
    *start = page & POOL_IS_SLAB ? 0 : bounds_start(at, page);
    return page;
}

pool_block *lochi_pool_find_around(const lochi_pool *pool, uintptr_t address)
{
    uintptr_t start;
    if (pool->is_virtual && address - pool->base >= pool->span) return bounds_find_in_annex(pool, address);
    const uintptr_t page = lochi_pool_find_page_around(pool, address, &start);
    const pool_slab *slab = lochi_pool_page_slab(page);
    pool_block *block = slab ? slab->block : lochi_pool_page_block(page);
    return block && address - block->start < block->bytes ? block : NULL;
}

pool_block *lochi_pool_find_before(const lochi_pool *pool, pool_block *first, uintptr_t address)
{
    lochi_lock_assert_held(&pool->lock);
    uintptr_t start;
    pool_block *block = first;
    const uintptr_t page = lochi_pool_find_page_around(pool, address, &start);
    const pool_slab *slab = page ? lochi_pool_page_slab(page) : NULL;
    if (slab && slab->start >= block->start) block = slab->block;
    if (page && !slab && lochi_pool_page_block(page)->start >= block->start) block = lochi_pool_page_block(page);
    return block;
}

/* --- checking --- */

/* A live block, or the range of a child pool. */
typedef struct bounds_extent {
    uintptr_t start;
    size_t bytes; /* as requested */
    const lochi_pool *child;
} bounds_extent;

static bool bounds_find_small(const pool_slab *slab, uintptr_t address, bounds_extent *out)
{
    const uint64_t offset = address - slab->start;
    const uint32_t index = (uint32_t)((offset * slab->reciprocal) >> 32);
    if (index >= slab->count) return false;
    const uint32_t seen = atomic_load_explicit(&slab->words[index], memory_order_relaxed);
    *out = (bounds_extent){slab->start + (uintptr_t)index * slab->object_bytes, seen & POOL_WORD_BYTES, NULL};
    return seen & POOL_WORD_LIVE && address - out->start < out->bytes;
}

static bool bounds_find(const lochi_pool *pool, uintptr_t address, bounds_extent *out)
{
    uintptr_t start;
    const uintptr_t page = lochi_pool_find_page_around(pool, address, &start);
    const pool_slab *slab = lochi_pool_page_slab(page);
    if (slab) return bounds_find_small(slab, address, out);
    const pool_block *block = lochi_pool_page_block(page);
    if (!block || !lochi_pool_is_out(lochi_pool_state(block))) return false;
    *out =
        (bounds_extent){start, lochi_pool_requested(block), atomic_load_explicit(&block->child, memory_order_acquire)};
    return address - start < out->bytes;
}

/* Says why bytes do not lie in one live block. `extent` is the block around their start; NULL for none. */
static loch_status bounds_refuse(const lochi_pool *pool, uintptr_t start, size_t bytes, const char *what,
                                 const bounds_extent *extent)
{
    const char *name = loch_allocator_get_name(pool->allocator);
    if (!extent)
        return LOCH_FAIL(
            OUT_OF_RANGE,
            "%p (the %s) is not in a live block of pool \"%s\": it was freed, or is past the end of a block",
            (void *)start, what, name);
    return LOCH_FAIL(OUT_OF_RANGE,
                     "%zu bytes at %p (the %s) go past the end of the block of %zu bytes at %p in pool \"%s\"", bytes,
                     (void *)start, what, extent->bytes, (void *)extent->start, name);
}

static loch_status bounds_check_any(const lochi_pool *pool, uintptr_t start, size_t bytes, const char *what)
{
    bounds_extent extent;
    bool is_found = bounds_find(pool, start, &extent);
    while (is_found && extent.child) {
        pool = extent.child;
        is_found = bounds_find(pool, start, &extent);
    }
    if (is_found && bytes <= extent.bytes - (start - extent.start)) return LOCH_OK;
    return bounds_refuse(pool, start, bytes, what, is_found ? &extent : NULL);
}

/* Checks a range in an annex, without a lock. */
static loch_status bounds_check_annex(const lochi_tenant *tenant, uintptr_t start, size_t bytes, const char *what)
{
    const pool_annex *annex = LOCHI_CONTAINER(tenant, pool_annex, tenant);
    const pool_block *block = atomic_load_explicit(&annex->block, memory_order_acquire);
    const bool is_live = block && lochi_pool_state(block) == POOL_GROWABLE;
    const bounds_extent extent = {annex->node.key, is_live ? lochi_pool_requested(block) : 0, NULL};
    const size_t before = start - extent.start;
    if (LOCHI_LIKELY(before < extent.bytes && bytes <= extent.bytes - before)) return LOCH_OK;
    return bounds_refuse(annex->pool, start, bytes, what, before < extent.bytes ? &extent : NULL);
}

/* Checks a range. Small blocks, and large blocks from their first page, need one look at the table of pages. */
static loch_status bounds_check(const lochi_tenant *tenant, uintptr_t start, size_t bytes, const char *what)
{
    const lochi_pool *pool = LOCHI_CONTAINER(tenant, lochi_pool, tenant);
    const size_t offset = start - pool->base;
    if (LOCHI_UNLIKELY(offset >= pool->span)) return bounds_check_any(pool, start, bytes, what); /* a raw segment */
    const uintptr_t page = atomic_load_explicit(&pool->pages[offset >> POOL_PAGE_SHIFT], memory_order_acquire);
    size_t before, has = 0; /* bytes of the block before `start`, and its size */
    if (page & POOL_IS_SLAB) {
        const pool_slab *slab = lochi_pool_page_slab(page);
        const uint64_t inside = start - slab->start;
        const uint32_t index = (uint32_t)((inside * slab->reciprocal) >> 32);
        before = inside - (uint64_t)index * slab->object_bytes;
        const uint32_t seen = index < slab->count ? atomic_load_explicit(&slab->words[index], memory_order_relaxed) : 0;
        if (seen & POOL_WORD_LIVE) has = seen & POOL_WORD_BYTES;
    } else {
        const pool_block *block = lochi_pool_page_block(page);
        before = (start & (POOL_PAGE - 1)) -
                 lochi_pool_page_offset(page); /* wraps around if the block starts above `start` */
        if (block && lochi_pool_is_out(lochi_pool_state(block)) && !lochi_pool_is_range(block))
            has = lochi_pool_requested(block);
    }
    if (LOCHI_LIKELY(before < has && bytes <= has - before)) return LOCH_OK;
    return bounds_check_any(pool, start, bytes, what);
}

void lochi_pool_open_bounds(lochi_pool *pool)
{
    pool->tenant.check = bounds_check;
    pool->annexes.tenant.check = bounds_check_annex;
}
