/* SPDX-License-Identifier: MIT */
/* The fast path of look-ups and resizes: reads the sizes of a block, describes it, and changes its size within the
 * memory that it has, without the lock. Except for the sizes, the thread enters its cache as for an allocation
 * (fast.h). So the block cannot fall asleep, be frozen or move meanwhile, and the stream of the thread's cache cannot
 * be destroyed.
 *
 * A wrong address takes the slow path, which has the error sentences. So does a resize of a block with a tag, further
 * streams, a session or a freeze.
 *
 * Ids. A block gets its id when it is first described in full. A thread takes a range of ids from the pool with the
 * lock held (walk.c) and hands them out here. The id of a small block is in a table of its slab, which stays with the
 * slab's record, so that a wrong address is harmless. Threads that describe a block at the same time agree on the id
 * that was written first. */
#ifndef LOCHI_POOL_LOOK_H
#define LOCHI_POOL_LOOK_H

#include "memory/pool/front/figures.h"
#include "memory/pool/front/fast.h"

/* --- ids --- */

/* Removes the id of a small block that ends, so that the next block at its place gets another one. The block has
 * POOL_WORD_NAMED. */
static inline void lochi_pool_unname(pool_slab *slab, const pool_word *word)
{
    pool_id *ids = atomic_load_explicit(&slab->ids, memory_order_acquire);
    atomic_store_explicit(&ids[word - slab->words], 0, memory_order_relaxed);
}

/* Writes `id` as the id of an object that may have one already. Returns the id that it has. */
static inline uint64_t lochi_pool_name(pool_id *id, uint64_t fresh)
{
    uint64_t seen = 0; /* relaxed: the number is all there is to read */
    const bool is_new =
        atomic_compare_exchange_strong_explicit(id, &seen, fresh, memory_order_relaxed, memory_order_relaxed);
    return is_new ? fresh : seen;
}

/* Writes the id of a small block, unless it has one. Returns the id. */
static inline uint64_t lochi_pool_name_small(pool_word *word, pool_id *place, uint64_t fresh)
{
    const uint64_t id = lochi_pool_name(place, fresh);
    uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
    while (seen & POOL_WORD_LIVE && !(seen & POOL_WORD_NAMED)) /* a wrong call may free it meanwhile */
        if (atomic_compare_exchange_weak_explicit(word, &seen, seen | POOL_WORD_NAMED, memory_order_relaxed,
                                                  memory_order_relaxed))
            break;
    return id;
}

/* Tells whether threads cache blocks of the size of the one at an address; it may be a wrong one. */
static inline bool lochi_pool_is_cacheable(const lochi_pool *pool, const void *pointer)
{
    const uintptr_t page = lochi_pool_fast_page(pool, (uintptr_t)pointer);
    const pool_block *block = lochi_pool_page_block(page);
    return !block || __atomic_load_n(&block->bytes, __ATOMIC_RELAXED) <= POOL_LARGE_MAX;
}

/* Removes the id of a small block that is plain apart from it, so that the block can be freed on the fast path.
 * Returns false if there is no such block. */
static inline bool lochi_pool_unname_fast(lochi_pool *pool, const void *pointer)
{
    pool_slab *slab = lochi_pool_page_slab(lochi_pool_fast_page(pool, (uintptr_t)pointer));
    pool_cache *first = slab ? lochi_pool_enter(pool) : NULL;
    if (!first) return false;
    pool_word *word = lochi_pool_slab_word(slab, (uintptr_t)pointer);
    const uint32_t live = word ? atomic_load_explicit(word, memory_order_relaxed) : 0;
    const bool is_named = live & POOL_WORD_NAMED && lochi_pool_is_simple(live & ~POOL_WORD_NAMED);
    if (is_named) {
        lochi_pool_unname(slab, word);
        atomic_store_explicit(word, live & ~POOL_WORD_NAMED, memory_order_relaxed);
    }
    lochi_pool_exit(first);
    return is_named;
}

/* --- describing --- */

/* Reads the sizes of the live block at an address. Returns false for a wrong address, or a growable block. Needs
 * neither the lock nor the gate: the tables from addresses to blocks are never freed before the pool ends, and the
 * sizes of a block belong to its holder, which is the caller. */
static inline bool lochi_pool_measure_fast(const lochi_pool *pool, const void *pointer, loch_block *out)
{
    const uintptr_t address = (uintptr_t)pointer, page = lochi_pool_fast_page(pool, address);
    if (LOCHI_LIKELY(page & POOL_IS_SLAB)) {
        pool_slab *slab = (pool_slab *)(page - POOL_IS_SLAB);
        const pool_word *word = lochi_pool_slab_word(slab, address);
        if (LOCHI_UNLIKELY(!word)) return false;
        const uint32_t live = atomic_load_explicit(word, memory_order_relaxed);
        if (LOCHI_UNLIKELY(!(live & POOL_WORD_LIVE))) return false;
        out->requested_bytes = live & POOL_WORD_BYTES;
        out->allocated_bytes = slab->object_bytes;
    } else {
        const pool_block *block = lochi_pool_page_block(page);
        if (!block || block->start != address) return false;
        const pool_state state = lochi_pool_state(block);
        if (state != POOL_USED && state != POOL_SPECIAL) return false;
        out->requested_bytes = lochi_pool_requested(block);
        out->allocated_bytes = block->bytes;
    }
    out->address = (void *)address;
    return true;
}

/* Assigns an id from the thread's range to a block that has none. Returns the block's id; 0 if the range is empty. */
static inline uint64_t lochi_pool_look_id(pool_cache *first, pool_word *word, pool_id *id)
{
    const uint64_t number = atomic_load_explicit(id, memory_order_relaxed);
    if (number || first->next_id == first->end_id) return number;
    const uint64_t fresh = first->next_id;
    const uint64_t taken = word ? lochi_pool_name_small(word, id, fresh) : lochi_pool_name(id, fresh);
    first->next_id += taken == fresh;
    return taken;
}

/* Describes a live block whose sizes lochi_pool_measure_fast has read: writes all other members. Returns false if
 * the call has to take the slow path. */
static inline bool lochi_pool_describe_fast(lochi_pool *pool, uintptr_t address, loch_block *out)
{
    pool_cache *first = lochi_pool_enter(pool);
    if (LOCHI_UNLIKELY(!first)) return false;
    const uintptr_t page = lochi_pool_fast_page(pool, address);
    pool_slab *slab = lochi_pool_page_slab(page);
    pool_word *word = slab ? lochi_pool_slab_word(slab, address) : NULL;
    pool_block *block = slab ? slab->block : lochi_pool_page_block(page);
    pool_id *ids = slab ? atomic_load_explicit(&slab->ids, memory_order_acquire) : NULL;
    pool_id *id = ids && word ? &ids[word - slab->words] : !slab && block ? &block->id : NULL;
    /* The stream of the thread's cache cannot end before the thread leaves. */
    const pool_cache *cache = id ? lochi_pool_fast_cache(first, block->lane) : NULL;
    out->id = cache && cache->stream ? lochi_pool_look_id(first, word, id) : 0;
    if (out->id) {
        out->stream_id = cache->stream->id;
        out->tag = word ? lochi_pool_word_tag(atomic_load_explicit(word, memory_order_relaxed)) : block->tag;
        out->time_ns = 0;
    }
    lochi_pool_exit(first);
    return out->id != 0;
}

/* --- resizing --- */

/* What the fast path did with a resize. */
typedef enum pool_resized {
    POOL_RESIZE_SLOWLY, /* nothing: take the slow path */
    POOL_RESIZED,       /* the block has the new size */
    POOL_RESIZE_MOVES   /* nothing: the block is plain, and the new size needs another block */
} pool_resized;

/* Resizes a small block within its memory, or tells that it has to move. Larger blocks take the slow path: they may
 * grow into free memory behind them, or give their end back. `stream` is that of the next use, or NULL; `bytes` is
 * neither 0 nor above the largest size of a block. Sets `before` to the old size, unless the call takes the slow
 * path. */
static inline __attribute__((always_inline)) pool_resized
lochi_pool_resize_fast(lochi_pool *pool, const void *pointer, size_t bytes, const loch_stream *stream, size_t *before)
{
    pool_cache *first = lochi_pool_enter(pool);
    if (LOCHI_UNLIKELY(!first)) return POOL_RESIZE_SLOWLY;
    bool is_peak = false;
    pool_resized result = POOL_RESIZE_SLOWLY;
    pool_slab *slab = lochi_pool_page_slab(lochi_pool_fast_page(pool, (uintptr_t)pointer));
    pool_word *word = slab ? lochi_pool_slab_word(slab, (uintptr_t)pointer) : NULL;
    if (LOCHI_UNLIKELY(!word)) goto leave;
    pool_cache *cache = lochi_pool_fast_cache(first, slab->lane);
    if (LOCHI_UNLIKELY(!cache || !cache->stream)) goto leave; /* the block's own stream may have ended */
    if (LOCHI_UNLIKELY(stream && stream != cache->stream) && lochi_pool_fast_cache_of(pool, cache, stream) != cache)
        goto leave;
    uint32_t live = atomic_load_explicit(word, memory_order_relaxed);
    if (LOCHI_UNLIKELY(!lochi_pool_is_simple(live & ~POOL_WORD_NAMED))) goto leave;
    *before = live & POOL_WORD_BYTES;
    result = POOL_RESIZE_MOVES;
    if (bytes > slab->object_bytes || bytes <= slab->object_bytes / 2) goto leave;
    /* Another thread may describe the block meanwhile and set POOL_WORD_NAMED. */
    while (!atomic_compare_exchange_weak_explicit(word, &live, (live & ~POOL_WORD_BYTES) | (uint32_t)bytes,
                                                  memory_order_relaxed, memory_order_relaxed))
        ;
    result = POOL_RESIZED;
    lochi_pool_note(first, POOL_REQUESTED, (int64_t)*before - (int64_t)bytes);
    is_peak = atomic_load_explicit(&first->metrics[POOL_REQUESTED].room, memory_order_relaxed) < 0;
    if (LOCHI_POOL_IS_CHECKED_HERE && pool->policy.checker)
        lochi_poison_resize(pool, (uintptr_t)pointer, *before, bytes, slab->object_bytes);
leave:
    lochi_pool_exit(first);
    if (LOCHI_UNLIKELY(is_peak)) lochi_pool_raise_late(pool, 0);
    return result;
}

#endif
