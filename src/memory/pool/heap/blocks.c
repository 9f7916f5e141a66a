/* SPDX-License-Identifier: MIT */
/* Large blocks: bins by size, cutting and merging. */
#include "memory/pool/heap/blocks.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/heap/bounds.h"
#include "memory/pool/heap/cells.h"
#include <limits.h>

#define HEAP_LOOKS 4 /* blocks of a bin that a search compares */
#define HEAP_BIN_BITS 5

/* --- bins --- */

/* Returns the bin for blocks of `bytes`: exact up to 32 units, then 32 bins for each power of two. */
static unsigned heap_bin(size_t bytes)
{
    const size_t units = bytes >> POOL_UNIT_SHIFT;
    if (units < 1u << HEAP_BIN_BITS) return (unsigned)units;
    const unsigned exponent = 63u - (unsigned)__builtin_clzll(units) - HEAP_BIN_BITS;
    return (exponent << HEAP_BIN_BITS) + (unsigned)(units >> exponent);
}

void lochi_pool_bins_add(pool_bins *bins, pool_block *block)
{
    const unsigned bin = heap_bin(block->bytes);
    lochi_pool_enlist(&bins->bins[bin], block);
    bins->words[bin / 64] |= (uint64_t)1 << (bin % 64);
    bins->summary |= (uint64_t)1 << (bin / 64);
}

void lochi_pool_bins_remove(pool_bins *bins, pool_block *block)
{
    const unsigned bin = heap_bin(block->bytes);
    lochi_pool_unlist(block);
    if (bins->bins[bin]) return;
    bins->words[bin / 64] &= ~((uint64_t)1 << (bin % 64));
    if (!bins->words[bin / 64]) bins->summary &= ~((uint64_t)1 << (bin / 64));
}

/* Finds the first bin at or above `bin` that has a block; POOL_BINS for none. */
static inline __attribute__((always_inline)) unsigned heap_bin_above(const pool_bins *bins, unsigned bin)
{
    if (bin >= POOL_BINS) return POOL_BINS;
    const uint64_t word = bins->words[bin / 64] >> (bin % 64);
    if (word) return bin + (unsigned)__builtin_ctzll(word);
    const unsigned next = bin / 64 + 1;
    const uint64_t summary = next < 64 ? bins->summary >> next << next : 0;
    if (!summary) return POOL_BINS;
    const unsigned index = (unsigned)__builtin_ctzll(summary);
    return index * 64 + (unsigned)__builtin_ctzll(bins->words[index]);
}

pool_block *lochi_pool_bins_from(const pool_bins *bins, size_t bytes, unsigned *bin)
{
    *bin = heap_bin_above(bins, bytes ? heap_bin(bytes) : *bin);
    return *bin < POOL_BINS ? bins->bins[*bin] : NULL;
}

pool_block *lochi_pool_bins_below(const pool_bins *bins, int *bin)
{
    for (; *bin >= 0; --*bin) {
        const uint64_t word = bins->words[*bin / 64] << (63 - *bin % 64);
        if (!word) {
            *bin &= ~63; /* the loop goes on with the word below */
            continue;
        }
        *bin -= __builtin_clzll(word);
        return bins->bins[*bin];
    }
    return NULL;
}

/* Tells whether `bytes` at a multiple of `alignment` fit in a block. */
static bool heap_holds(const pool_block *block, size_t bytes, size_t alignment)
{
    const size_t shift = -block->start & (alignment - 1);
    return shift <= block->bytes && bytes <= block->bytes - shift;
}

/* Tells whether a block lies before another one: by the age of their segments, and by address inside one segment.
 * Processes that make the same requests get segments from their sources at other addresses, but in the same order. */
static LOCHI_RARE bool heap_is_older(const lochi_pool *pool, const pool_block *block, const pool_block *other)
{
    const pool_handle *home = lochi_pool_find_handle(pool, block->start),
                      *other_home = lochi_pool_find_handle(pool, other->start);
    return home == other_home ? block->start < other->start : home->age < other_home->age;
}

static inline bool heap_is_before(const lochi_pool *pool, const pool_block *block, const pool_block *other)
{
    if (LOCHI_UNLIKELY(pool->options.source != NULL)) return heap_is_older(pool, block, other);
    return block->start < other->start;
}

/* Finds the smallest block that fits among the first `looks` of a bin; the first in the pool's order of equal ones. */
static inline __attribute__((always_inline)) pool_block *
heap_smallest(const lochi_pool *pool, pool_block *block, size_t bytes, size_t alignment, bool is_piece, unsigned looks)
{
    pool_block *best = NULL;
    for (; block && looks; block = block->list_next, looks--) {
        if (!heap_holds(block, bytes, alignment) || block->is_piece != is_piece) continue;
        if (!best || block->bytes < best->bytes || (block->bytes == best->bytes && heap_is_before(pool, block, best)))
            best = block;
    }
    return best;
}

static inline __attribute__((always_inline)) pool_block *heap_fit_bins(const lochi_pool *pool, const pool_bins *bins,
                                                                       size_t bytes, size_t alignment, bool is_piece,
                                                                       unsigned looks)
{
    for (unsigned bin = heap_bin(bytes); (bin = heap_bin_above(bins, bin)) < POOL_BINS; bin++) {
        pool_block *block = heap_smallest(pool, bins->bins[bin], bytes, alignment, is_piece, looks);
        if (block) return block;
    }
    return NULL;
}

static LOCHI_RARE pool_block *heap_fit_all(const lochi_pool *pool, const pool_bins *bins, size_t bytes,
                                           size_t alignment, bool is_piece)
{
    return heap_fit_bins(pool, bins, bytes, alignment, is_piece, UINT_MAX);
}

/* Searches a few blocks of each bin first, and all blocks before it gives up. */
pool_block *lochi_pool_bins_fit(const lochi_pool *pool, const pool_bins *bins, size_t bytes, size_t alignment,
                                bool is_piece)
{
    pool_block *block = heap_fit_bins(pool, bins, bytes, alignment, is_piece, HEAP_LOOKS);
    return LOCHI_LIKELY(block != NULL) ? block : heap_fit_all(pool, bins, bytes, alignment, is_piece);
}

/* Tells whether a block is free and may be merged with free memory of a lane. */
static bool heap_may_join(const pool_block *block, const pool_lane *lane)
{
    return block && lochi_pool_state(block) == POOL_FREE && !block->is_piece &&
           (block->lane == lane ||
            (!block->lane->capture && lochi_pool_has_passed(block->lane, lochi_pool_epoch(block))));
}

/* Free memory that can be merged. */
typedef struct heap_run {
    uintptr_t start, end;
} heap_run;

/* Finds the free memory around a free block that can be merged with it. */
static heap_run heap_find_run(const pool_block *block)
{
    const pool_block *first = block, *last = block;
    while (heap_may_join(first->before, block->lane))
        first = first->before;
    while (heap_may_join(last->behind, block->lane))
        last = last->behind;
    return (heap_run){first->start, last->start + last->bytes};
}

size_t lochi_pool_find_largest(const lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    size_t largest = 0;
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        int bin = POOL_BINS - 1;
        const pool_block *block = lochi_pool_bins_below(&lane->bins, &bin);
        for (; block; block = block->list_next)
            if (block->bytes > largest) largest = block->bytes;
        for (bin = POOL_BINS - 1; (block = lochi_pool_bins_below(&lane->arenas, &bin)); bin--)
            for (; block; block = block->list_next) {
                const heap_run run = heap_find_run(block); /* a request that fits nowhere else opens arenas */
                if (run.end - run.start > largest) largest = run.end - run.start;
            }
    }
    return largest;
}

/* --- cutting --- */

pool_block *lochi_pool_split(lochi_pool *pool, pool_block *block, uintptr_t at)
{
    lochi_lock_assert_held(&pool->lock);
    pool_block *rest = lochi_pool_take_record(pool);
    rest->start = at;
    lochi_pool_set_bytes(rest, block->start + block->bytes - at);
    rest->lane = block->lane;
    lochi_pool_set_epoch(rest, block->epoch);
    rest->flags = block->flags;
    rest->has_uses = false;
    lochi_pool_set_state(rest, lochi_pool_state(block));
    rest->before = block;
    rest->behind = block->behind;
    if (rest->behind) rest->behind->before = rest;
    block->behind = rest;
    lochi_pool_set_bytes(block, block->bytes - rest->bytes);
    return rest;
}

/* Returns the bins that a free block is in. */
static pool_bins *heap_bins(const pool_block *block)
{
    return block->is_arena ? &block->lane->arenas : &block->lane->bins;
}

static inline loch_status heap_cut(lochi_pool *pool, pool_block *block, uintptr_t start, size_t bytes)
{
    if (LOCHI_UNLIKELY(pool->policy.is_unsplit) && start == block->start) bytes = block->bytes; /* a whole segment */
    if (LOCHI_UNLIKELY(!pool->records.spare || !pool->records.spare->list_next) && !lochi_pool_stock_records(pool, 2))
        return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    pool_bins *bins = heap_bins(block);
    lochi_pool_bins_remove(bins, block);
    if (start > block->start) {
        pool_block *front = block;
        block = lochi_pool_split(pool, front, start);
        lochi_pool_bins_add(bins, front);
    }
    if (block->bytes > bytes) lochi_pool_bins_add(bins, lochi_pool_split(pool, block, start + bytes));
    return LOCH_OK;
}

loch_status lochi_pool_cut(lochi_pool *pool, pool_block *block, uintptr_t start, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    return heap_cut(pool, block, start, bytes);
}

pool_block *lochi_pool_fit_in(lochi_pool *pool, pool_block *block, const pool_want *want, loch_status *status)
{
    const size_t shift = -block->start & (want->alignment - 1);
    lochi_pool_fetch_page(pool, block->start + shift);
    *status = heap_cut(pool, block, block->start + shift, want->bytes);
    if (*status != LOCH_OK) return NULL;
    return shift ? block->behind : block; /* the record stays with the front part */
}

/* Cuts a request out of the best block of the bins. */
static pool_block *heap_fit(lochi_pool *pool, const pool_bins *bins, const pool_want *want, loch_status *status)
{
    pool_block *block = lochi_pool_bins_fit(pool, bins, want->bytes, want->alignment, false);
    if (block && LOCHI_UNLIKELY(pool->policy.is_unsplit) && !lochi_pool_is_near(block, want->bytes)) return NULL;
    return block ? lochi_pool_fit_in(pool, block, want, status) : NULL;
}

pool_block *lochi_pool_fit(lochi_pool *pool, pool_lane *lane, const pool_want *want, loch_status *status)
{
    lochi_lock_assert_held(&pool->lock);
    return heap_fit(pool, &lane->bins, want, status);
}

pool_block *lochi_pool_fit_arena(lochi_pool *pool, pool_lane *lane, const pool_want *want, loch_status *status)
{
    lochi_lock_assert_held(&pool->lock);
    return heap_fit(pool, &lane->arenas, want, status);
}

/* --- merging --- */

/* Merges a block with the one behind it. Both are in no list. */
static void heap_join(lochi_pool *pool, pool_block *block)
{
    pool_block *behind = block->behind;
    lochi_pool_set_bytes(block, block->bytes + behind->bytes);
    if (behind->epoch != block->epoch && lochi_pool_epoch(behind) > lochi_pool_epoch(block))
        lochi_pool_set_epoch(block, behind->epoch);
    block->behind = behind->behind;
    if (block->behind) block->behind->before = block;
    lochi_pool_drop_record(pool, behind);
}

static inline bool heap_is_like(const pool_block *neighbour, const pool_block *block)
{
    return neighbour && lochi_pool_state(neighbour) == POOL_FREE && neighbour->lane == block->lane &&
           neighbour->is_arena == block->is_arena && !neighbour->is_piece;
}

/* Merges a block that is in no list with its free neighbours. */
static pool_block *heap_merge(lochi_pool *pool, pool_block *block)
{
    if (heap_is_like(block->behind, block)) {
        lochi_pool_bins_remove(heap_bins(block), block->behind);
        heap_join(pool, block);
    }
    if (heap_is_like(block->before, block)) {
        block = block->before;
        lochi_pool_bins_remove(heap_bins(block), block);
        heap_join(pool, block);
    }
    return block;
}

void lochi_pool_make_arena(lochi_pool *pool, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    block->is_arena = true;
    lochi_pool_set_state(block, POOL_FREE);
    block = heap_merge(pool, block);
    lochi_pool_bins_add(&block->lane->arenas, block);
}

/* Tells whether the default cap of LOCH_POOL_WHOLE_BLOCKS ignores a free block. */
static bool heap_is_kept(const pool_block *block)
{
    return block->is_piece && block->bytes > POOL_WHOLE_BIG;
}

/* Lists a handle as idle if it lies under free blocks only, `block` among them. Otherwise notes a live address in it.
 * Looks at the blocks on both sides in turns, so a search is as short as the shorter run of free blocks. */
static void heap_list_handle(lochi_pool *pool, pool_block *block, pool_handle *handle)
{
    pool_block *before = block, *behind = block;
    bool is_kept = heap_is_kept(block);
    const uintptr_t end = handle->at + handle->bytes;
    uintptr_t live_at = 0;
    while (!live_at && (before->start > handle->at || behind->start + behind->bytes < end)) {
        pool->cap.visits++;
        if (before->start > handle->at) {
            before = before->before;
            is_kept |= heap_is_kept(before);
            if (!lochi_pool_is_idle(before)) live_at = before->start + before->bytes - 1;
        }
        if (!live_at && behind->start + behind->bytes < end) {
            behind = behind->behind;
            is_kept |= heap_is_kept(behind);
            if (!lochi_pool_is_idle(behind)) live_at = behind->start;
        }
    }
    lochi_pool_unlist_idle(&handle->idle, live_at);
    if (live_at) return;
    if (pool->policy.is_virtual && before != block) handle->first = before;
    lochi_pool_list_idle(is_kept ? &pool->cap.kept : &pool->cap.handles, &handle->idle);
}

static void heap_note_epoch(pool_handle *handle, pool_lane *lane, uint64_t epoch)
{
    if (handle->freed_lane != lane) { /* other parts may have been freed in the other lane until now */
        handle->freed_lane = lane;
        handle->freed_epoch = lane->epoch;
    } else if (handle->freed_epoch < epoch) {
        handle->freed_epoch = epoch;
    }
}

/* Notes the free of a block in its handles: when a part was last freed, and whether all of a handle is free now. */
static void heap_note_handles(lochi_pool *pool, pool_block *block, uint64_t epoch)
{
    if (pool->range) return;                                           /* stays until the pool ends */
    const bool has_passed = !epoch || block->lane->done == UINT64_MAX; /* everywhere already */
    const uintptr_t end = block->start + block->bytes;
    pool_block *merged = !block->is_piece && heap_is_like(block->before, block) ? block->before : block;
    for (uintptr_t at = block->start; at < end;) {
        pool_handle *handle = lochi_pool_find_cell(pool, at)->handle;
        if (!has_passed) heap_note_epoch(handle, block->lane, epoch);
        if (pool->policy.is_virtual && handle->at - block->start < block->bytes) handle->first = merged;
        if (handle->idle.list != &pool->cap.handles &&
            (!handle->idle.live_at || handle->idle.live_at - block->start < block->bytes))
            heap_list_handle(pool, block, handle);
        at = handle->at + handle->bytes;
    }
}

void lochi_pool_list_handles(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    if (pool->cap.is_listed) return;
    pool->cap.is_listed = true;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));)
        if (lochi_pool_is_idle(block)) heap_note_handles(pool, block, 0);
}

/* Ends a block in an annex: its memory stays where it is until `epoch` has passed (shrunk.c). */
static pool_block *heap_end_annexed(lochi_pool *pool, pool_block *block, uint64_t epoch)
{
    lochi_pool_set_state(block, POOL_WAITING);
    if (lochi_pool_sleeps_at(pool, block->start, block->bytes)) epoch = 0; /* no stream used it since it fell asleep */
    block->shrink_epoch = epoch;
    if (epoch > block->lane->freed) block->lane->freed = epoch;
    pool->used += block->bytes;
    pool->waiting_bytes += block->bytes;
    pool->has_shrunk = pool->cap.has_freed = true;
    lochi_pool_enlist(&pool->annexes.ended, block);
    return block;
}

static void heap_count_piece(lochi_pool *pool, const pool_block *block)
{
    pool->cap.pieces_freed++;
    if (heap_is_kept(block)) pool->cap.pieces_bytes += block->bytes;
}

pool_block *lochi_pool_make_free(lochi_pool *pool, pool_block *block, uint64_t epoch)
{
    lochi_lock_assert_held(&pool->lock);
    if (LOCHI_UNLIKELY(block->is_annex)) return heap_end_annexed(pool, block, epoch);
    if (lochi_pool_sleeps_at(pool, block->start, block->bytes)) return lochi_pool_make_dormant(pool, block);
    lochi_pool_set_state(block, POOL_FREE);
    lochi_pool_set_epoch(block, epoch);
    lochi_pool_set_id(block, 0);
    pool->cap.has_freed = true;
    if (epoch > block->lane->freed) block->lane->freed = epoch;
    if (pool->cap.is_obedient) {
        if (block->bytes <= pool->cap.joined_bytes) block->is_piece = false; /* serves requests of other sizes */
        heap_note_handles(pool, block, epoch);
    }
    if (!block->is_piece)
        block = heap_merge(pool, block);
    else
        heap_count_piece(pool, block);
    if (block->is_arena &&
        block->bytes >= POOL_ARENA) { /* an arena that is free as a whole becomes an ordinary free block */
        block->is_arena = false;
        block = heap_merge(pool, block);
    }
    lochi_pool_bins_add(heap_bins(block), block);
    return block;
}

void lochi_pool_unbin(lochi_pool *pool, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    if (block->is_piece && block->bytes > POOL_WHOLE_BIG) pool->cap.pieces_bytes -= block->bytes;
    lochi_pool_bins_remove(heap_bins(block), block);
}

void lochi_pool_rebin(lochi_pool *pool, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    if (block->is_piece && block->bytes > POOL_WHOLE_BIG) pool->cap.pieces_bytes += block->bytes;
    lochi_pool_bins_add(heap_bins(block), block);
}

void lochi_pool_hold(lochi_pool *pool, pool_block *block, pool_block **list)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_bins_remove(heap_bins(block), block);
    lochi_pool_set_state(block, POOL_DETACHED);
    lochi_pool_enlist(list, block);
}

pool_block *lochi_pool_put_back(lochi_pool *pool, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_unlist(block);
    lochi_pool_set_state(block, POOL_FREE);
    if (pool->cap.is_obedient) heap_note_handles(pool, block, 0);
    block = heap_merge(pool, block);
    lochi_pool_bins_add(heap_bins(block), block);
    return block;
}

static bool heap_is_dormant(const pool_block *neighbour, const pool_block *block)
{
    return neighbour && lochi_pool_state(neighbour) == POOL_DORMANT && neighbour->lane == block->lane &&
           neighbour->is_arena == block->is_arena;
}

pool_block *lochi_pool_make_dormant(lochi_pool *pool, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_set_state(block, POOL_DORMANT);
    lochi_pool_set_id(block, 0);
    lochi_pool_set_epoch(block, 0);
    block->is_piece = false;
    pool->sleep.dormant_bytes += block->bytes;
    if (heap_is_dormant(block->behind, block)) heap_join(pool, block);
    if (!heap_is_dormant(block->before, block)) return block;
    block = block->before;
    heap_join(pool, block);
    return block;
}

pool_block *lochi_pool_adopt(lochi_pool *pool, pool_block *block, pool_lane *lane, uint64_t epoch)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_bins_remove(heap_bins(block), block);
    block->lane = lane;
    block->is_captured = lane->capture != 0;
    return lochi_pool_make_free(pool, block, epoch);
}

pool_block *lochi_pool_hand_over(lochi_pool *pool, pool_block *block, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    return lochi_pool_adopt(pool, block, lane, 0); /* passed in every lane */
}

pool_block *lochi_pool_make_unmapped(lochi_pool *pool, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_set_state(block, POOL_UNMAPPED);
    lochi_pool_set_epoch(block, 0);
    block->lane = NULL;
    block->is_captured = block->is_arena = false;
    if (block->behind && lochi_pool_state(block->behind) == POOL_UNMAPPED) {
        lochi_pool_bins_remove(pool->unmapped_ranges, block->behind);
        heap_join(pool, block);
    }
    if (block->before && lochi_pool_state(block->before) == POOL_UNMAPPED) {
        block = block->before;
        lochi_pool_bins_remove(pool->unmapped_ranges, block);
        heap_join(pool, block);
    }
    lochi_pool_bins_add(pool->unmapped_ranges, block);
    return block;
}

/* --- walks over all blocks --- */

/* Returns the first block of the range or annex behind that of `block`, by address. */
static pool_block *heap_next_reserved(const lochi_pool *pool, const pool_block *block)
{
    const uintptr_t from = !block ? 0 : (block->is_annex ? block->start : pool->base) + 1;
    const lochi_tree_node *node = lochi_tree_at_or_above(&pool->annexes.tree, from);
    if (pool->first && from <= pool->base && (!node || node->key > pool->base)) return pool->first;
    return node ? atomic_load_explicit(&LOCHI_CONTAINER(node, pool_annex, node)->block, memory_order_relaxed) : NULL;
}

pool_block *lochi_pool_next_block(const lochi_pool *pool, const pool_block *block)
{
    if (block && block->behind) return block->behind;
    if (pool->policy.is_virtual) return heap_next_reserved(pool, block);
    const pool_handle *segment = block ? lochi_pool_find_cell(pool, block->start)->handle->next : pool->handles;
    return segment ? segment->first : NULL;
}

void lochi_pool_join_pieces(lochi_pool *pool, size_t max_bytes)
{
    lochi_lock_assert_held(&pool->lock);
    pool->cap.pieces_freed = 0;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block)); pool->cap.visits++) {
        if (lochi_pool_state(block) != POOL_FREE || !block->is_piece || block->bytes > max_bytes) continue;
        lochi_pool_unbin(pool, block);
        block->is_piece = false;
        block = lochi_pool_make_free(pool, block, lochi_pool_epoch(block));
    }
}

/* Tells whether a free block may be given to any lane. */
static bool heap_is_anybodys(const pool_block *block)
{
    return heap_may_join(block, NULL) && !block->is_arena;
}

/* Makes free memory of arenas ordinary free memory of their lanes: of all of them, or where it keeps a handle from
 * being idle. */
static void heap_open_arenas(lochi_pool *pool, bool all)
{
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        int bin = POOL_BINS - 1;
        for (pool_block *block; (block = lochi_pool_bins_below(&lane->arenas, &bin)); bin--)
            for (pool_block *next; block; block = next) {
                next = block->list_next; /* opened arenas leave the bin */
                const heap_run run = heap_find_run(block);
                if (!all && !lochi_pool_find_whole_under(pool, block, run.start, run.end)) continue;
                lochi_pool_bins_remove(&lane->arenas, block);
                block->is_arena = false;
                block = heap_merge(pool, block);
                lochi_pool_bins_add(&block->lane->bins, block);
            }
    }
}

void lochi_pool_join_lanes(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    heap_open_arenas(pool, !pool->policy.is_virtual); /* all, where nothing can be remapped */
    if (!pool->lanes || !pool->lanes->next) return;   /* free neighbours of one lane are merged already */
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        if (!heap_is_anybodys(block) || !heap_is_anybodys(block->behind)) continue;
        lochi_pool_bins_remove(heap_bins(block), block);
        while (heap_is_anybodys(block->behind)) {
            lochi_pool_bins_remove(heap_bins(block->behind), block->behind);
            lochi_pool_set_epoch(block, 0); /* passed in every lane */
            lochi_pool_set_epoch(block->behind, 0);
            heap_join(pool, block);
        }
        block = heap_merge(pool, block); /* with memory that its own lane still uses */
        lochi_pool_bins_add(heap_bins(block), block);
    }
}

void lochi_pool_join_all(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    heap_open_arenas(pool, true);
    lochi_pool_join_lanes(pool);
}

/* Makes a free block that is in no bin ordinary free memory of a lane. */
static void heap_claim(pool_block *block, pool_lane *lane)
{
    block->is_arena = block->is_piece = false;
    if (block->lane == lane) return;
    block->lane = lane;
    block->is_captured = lane->capture != 0;
    lochi_pool_set_epoch(block, 0); /* passed in every lane */
}

pool_block *lochi_pool_join_for(lochi_pool *pool, pool_block *block, uintptr_t end, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_unbin(pool, block);
    heap_claim(block, lane);
    while (block->start + block->bytes < end) {
        lochi_pool_unbin(pool, block->behind);
        heap_claim(block->behind, lane);
        heap_join(pool, block);
    }
    block = heap_merge(pool, block);
    lochi_pool_bins_add(heap_bins(block), block);
    return block;
}
