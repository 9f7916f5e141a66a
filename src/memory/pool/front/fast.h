/* SPDX-License-Identifier: MIT */
/* The fast path: allocates from and frees to the calling thread's cache. It takes no lock and touches no cache line
 * that other threads write. In a header, so that the dispatch inlines it.
 *
 * The thread sets `busy` in its first cache, crosses the light fence and reads the gate. A thread that closes the
 * gate crosses the heavy fence and waits until no cache is busy. So either the first thread sees the closed gate and
 * takes the slow path, or the second thread waits for it. tests/models/gate.pml is a model of this. */
#ifndef LOCHI_POOL_FAST_H
#define LOCHI_POOL_FAST_H

#include "base/fence.h"
#include "base/sanitize.h"
#include "memory/pool/state/state.h"
#include "memory/recorder/recorder.h"

/* Only a library built with AddressSanitizer notifies the tool on the fast path. In all other builds the gate is
 * closed while AddressSanitizer or valgrind checks the program. */
#define LOCHI_POOL_IS_CHECKED_HERE LOCHI_ASAN

/* --- entering and leaving --- */

/* Enters the calling thread's first cache. Returns NULL if the call has to take the slow path. */
static inline pool_cache *lochi_pool_enter(lochi_pool *pool)
{
    pool_cache *first = atomic_load_explicit(&pool->caches[lochi_thread_slot_plus_one], memory_order_acquire);
    if (LOCHI_UNLIKELY(!first)) return NULL;
    atomic_store_explicit(&first->busy, true, memory_order_relaxed);
    lochi_fence_lightest();
    if (LOCHI_LIKELY(atomic_load_explicit(&pool->gate, memory_order_acquire) == 0))
        return first; /* acquire: ordered after the thread that opened the gate */
    atomic_store_explicit(&first->busy, false, memory_order_release);
    return NULL;
}

static inline void lochi_pool_exit(pool_cache *first)
{
    atomic_store_explicit(&first->busy, false, memory_order_release);
}

/* --- counting --- */

/* Adds to the room of a figure, which only the thread of the cache writes and other threads read. Compilers make a
 * load, an addition and a store of a relaxed atomic; one instruction is enough. */
static inline void lochi_pool_note(pool_cache *cache, int metric, int64_t more)
{
    _Atomic int64_t *room = &cache->metrics[metric].room;
#if defined(__x86_64__) && !LOCHI_TSAN && !LOCHI_MSAN
    __asm__("addq %1, %0" : "+m"(*(int64_t *)room) : "er"(more) : "cc");
#else
    atomic_store_explicit(room, atomic_load_explicit(room, memory_order_relaxed) + more, memory_order_relaxed);
#endif
}

/* Counts an allocation. Returns whether the thread has to call lochi_pool_raise: it may be a peak. */
static inline bool lochi_pool_note_alloc(pool_cache *cache, size_t requested, size_t allocated)
{
    cache->allocs++;
    lochi_pool_note(cache, POOL_BLOCKS, -1);
    lochi_pool_note(cache, POOL_REQUESTED, -(int64_t)requested);
    lochi_pool_note(cache, POOL_ALLOCATED, -(int64_t)allocated);
    int64_t least = atomic_load_explicit(&cache->metrics[POOL_BLOCKS].room, memory_order_relaxed);
    least |= atomic_load_explicit(&cache->metrics[POOL_REQUESTED].room, memory_order_relaxed);
    least |= atomic_load_explicit(&cache->metrics[POOL_ALLOCATED].room, memory_order_relaxed);
    return least < 0 || requested > atomic_load_explicit(&cache->largest_limit, memory_order_relaxed);
}

static inline void lochi_pool_note_free(pool_cache *cache, size_t requested, size_t allocated)
{
    lochi_pool_note(cache, POOL_BLOCKS, 1);
    lochi_pool_note(cache, POOL_REQUESTED, (int64_t)requested);
    lochi_pool_note(cache, POOL_ALLOCATED, (int64_t)allocated);
}

/* --- blocks above slabs' sizes --- */

static inline unsigned lochi_pool_fast_bin(size_t bytes)
{
    const uint32_t units = (uint32_t)(bytes >> POOL_UNIT_SHIFT);
    return units < POOL_LARGE_DIRECT ? units : POOL_LARGE_DIRECT + (units * 0x9e3779b1u >> 26);
}

/* Takes a cached block of exactly `bytes`; NULL for none. */
static inline pool_block *lochi_pool_fast_pop(pool_cache *cache, size_t bytes)
{
    if (bytes > POOL_LARGE_MAX) {
        pool_block *last = cache->last;
        if (!last || last->bytes != bytes) return NULL;
        cache->last = NULL;
        atomic_store_explicit(&cache->last_bytes, 0, memory_order_relaxed);
        return last;
    }
    pool_block **link = &cache->large[lochi_pool_fast_bin(bytes)], *block;
    for (unsigned looks = 0; (block = *link) && looks < POOL_LARGE_LOOKS; link = &block->list_next, looks++) {
        if (LOCHI_UNLIKELY(block->bytes != bytes)) continue;
        *link = block->list_next;
        cache->large_bytes -= bytes;
        return block;
    }
    return NULL;
}

/* Caches a freed block. Returns false if there is no room. */
static inline bool lochi_pool_fast_push(const lochi_pool *pool, pool_cache *cache, pool_block *block)
{
    const size_t bytes = block->bytes;
    if (bytes > POOL_LARGE_MAX) {
        if (cache->last || pool->is_capped) return false;
        cache->last = block;
        lochi_pool_fetch_neighbours(block); /* the next request of another size merges it */
        atomic_store_explicit(&cache->last_bytes, bytes, memory_order_relaxed);
        return true;
    }
    if (LOCHI_UNLIKELY(cache->large_bytes + bytes > POOL_LARGE_BYTES)) return false;
    pool_block **bin = &cache->large[lochi_pool_fast_bin(bytes)];
    block->list_next = *bin;
    *bin = block;
    cache->large_bytes += bytes;
    return true;
}

/* --- allocating --- */

/* Takes a small block. `rounded` is `bytes`, rounded up to a multiple of the alignment. Sets `*is_peak` if the caller
 * has to call lochi_pool_raise_late. */
static inline bool lochi_pool_fast_small(const lochi_pool *pool, pool_cache *first, pool_cache *cache, size_t bytes,
                                         size_t rounded, bool *is_peak, void **out)
{
    pool_stack *stack = &cache->stacks[lochi_pool_class(pool, rounded)];
    if (LOCHI_UNLIKELY(!stack->count)) return false;
    const pool_entry entry = stack->entries[--stack->count];
    atomic_store_explicit(entry.word, POOL_WORD_LIVE | (uint32_t)bytes, memory_order_relaxed);
    *is_peak = lochi_pool_note_alloc(first, bytes, stack->bytes);
    if (LOCHI_POOL_IS_CHECKED_HERE) lochi_pool_show(pool, (uintptr_t)entry.address, bytes);
    *out = entry.address;
    return true;
}

static inline bool lochi_pool_fast_large(const lochi_pool *pool, pool_cache *first, pool_cache *cache, size_t bytes,
                                         bool *is_peak, void **out)
{
    pool_block *block = lochi_pool_fast_pop(cache, (bytes + POOL_UNIT - 1) & ~(POOL_UNIT - 1));
    if (!block) return false;
    lochi_pool_set_slack(block, block->bytes - bytes); /* less than a unit */
    lochi_pool_set_state(block, POOL_USED);
    *is_peak = lochi_pool_note_alloc(first, bytes, block->bytes);
    if (LOCHI_POOL_IS_CHECKED_HERE) lochi_pool_show(pool, block->start, bytes);
    *out = (void *)block->start;
    return true;
}

/* Finds the thread's cache for a stream other than that of its first cache; NULL for none. */
static inline pool_cache *lochi_pool_fast_cache_of(const lochi_pool *pool, pool_cache *cache, const loch_stream *stream)
{
    if (pool->policy.is_at_once) /* one cache serves all streams */
        return stream->device == pool->device && !atomic_load_explicit(&stream->closed, memory_order_acquire) ? cache
                                                                                                              : NULL;
    while (cache && cache->stream != stream)
        cache = cache->next;
    return cache;
}

/* Answers of lochi_pool_alloc_here. */
typedef enum pool_answer {
    POOL_ANSWER_EMPTY, /* the cache has no such block, or cannot be used: take the lock */
    POOL_ANSWER_OTHER, /* the cache serves another stream: the thread may have a further one */
    POOL_ANSWER_PEAK,  /* served; the caller has to call lochi_pool_raise_late */
    POOL_ANSWER_SERVED
} pool_answer;

/* Takes a block from the calling thread's first cache. Two copies of this code, for small and for larger blocks, need
 * fewer registers than one for both. */
static inline __attribute__((always_inline)) pool_answer
lochi_pool_alloc_here(lochi_pool *pool, size_t bytes, const loch_stream *stream, bool is_small, void **out)
{
    pool_cache *first = lochi_pool_enter(pool);
    if (LOCHI_UNLIKELY(!first)) return POOL_ANSWER_EMPTY;
    if (LOCHI_LIKELY(!stream)) stream = pool->default_stream;
    pool_answer result = POOL_ANSWER_OTHER;
    if (LOCHI_LIKELY(first->stream == stream)) {
        bool is_peak = false;
        const bool is_served = is_small ? lochi_pool_fast_small(pool, first, first, bytes, bytes, &is_peak, out)
                                        : lochi_pool_fast_large(pool, first, first, bytes, &is_peak, out);
        result = LOCHI_UNLIKELY(is_peak) ? POOL_ANSWER_PEAK : is_served ? POOL_ANSWER_SERVED : POOL_ANSWER_EMPTY;
    }
    lochi_pool_exit(first);
    return result;
}

/* Takes a block from the calling thread's cache. Returns false if the call has to take the slow path. Only the bytes,
 * the stream and the alignment of the request are read; the alignment is a power of two or 0. Sets `*is_peak` if the
 * caller has to call lochi_pool_raise_late. */
static inline __attribute__((always_inline)) bool lochi_pool_alloc_fast(lochi_pool *pool, const loch_request *request,
                                                                        bool *is_peak, void **out)
{
    const size_t bytes = request->bytes;
    size_t rounded = bytes;
    if (LOCHI_UNLIKELY(request->alignment > pool->unit)) { /* large blocks are aligned to their unit */
        if (request->alignment > (bytes <= POOL_SMALL_MAX ? POOL_SMALL_MAX : POOL_UNIT)) return false;
        rounded = (bytes + request->alignment - 1) & ~(request->alignment - 1);
    }
    const loch_stream *stream = request->stream;
    if (LOCHI_LIKELY(!stream)) stream = pool->default_stream;
    pool_cache *first = lochi_pool_enter(pool), *cache = first;
    if (LOCHI_UNLIKELY(!first)) return false;
    if (LOCHI_UNLIKELY(cache->stream != stream)) cache = lochi_pool_fast_cache_of(pool, cache, stream);
    bool is_served = false;
    if (LOCHI_LIKELY(cache != NULL)) {
        if (LOCHI_LIKELY(bytes - 1 < POOL_SMALL_MAX))
            is_served = lochi_pool_fast_small(pool, first, cache, bytes, rounded, is_peak, out);
        else if (bytes)
            is_served = lochi_pool_fast_large(pool, first, cache, bytes, is_peak, out);
    }
    lochi_pool_exit(first);
    return is_served;
}

/* --- freeing --- */

/* Tells whether a word is live and has no flag besides: no tag, no further streams. */
static inline bool lochi_pool_is_simple(uint32_t word)
{
    return word >> POOL_WORD_TAG_SHIFT == POOL_WORD_LIVE >> POOL_WORD_TAG_SHIFT;
}

static inline pool_cache *lochi_pool_fast_cache(pool_cache *cache, const pool_lane *lane)
{
    while (LOCHI_UNLIKELY(cache && cache->lane != lane))
        cache = cache->next;
    return cache;
}

static inline bool lochi_pool_fast_free_small(const lochi_pool *pool, pool_cache *first, pool_slab *slab,
                                              uintptr_t address)
{
    pool_word *word = lochi_pool_slab_word(slab, address);
    if (LOCHI_UNLIKELY(!word)) return false;
    pool_cache *cache = lochi_pool_fast_cache(first, slab->lane);
    if (LOCHI_UNLIKELY(!cache)) return false;
    const uint32_t live = atomic_load_explicit(word, memory_order_relaxed);
    if (LOCHI_UNLIKELY(!lochi_pool_is_simple(live))) return false;
    pool_stack *stack = &cache->stacks[slab->class];
    const uint32_t count = stack->count;
    if (LOCHI_UNLIKELY(count == stack->capacity)) return false;
    atomic_store_explicit(word, POOL_WORD_FREED, memory_order_relaxed);
    stack->count = count + 1;
    stack->entries[count] = (pool_entry){(void *)address, word};
    lochi_pool_note_free(first, live & POOL_WORD_BYTES, slab->object_bytes);
    if (LOCHI_POOL_IS_CHECKED_HERE) lochi_pool_hide(pool, address, slab->object_bytes);
    return true;
}

static inline __attribute__((always_inline)) bool lochi_pool_fast_free_large(const lochi_pool *pool, pool_cache *first,
                                                                             pool_block *block, uintptr_t address)
{
    pool_cache *cache = lochi_pool_fast_cache(first, block->lane);
    if (LOCHI_UNLIKELY(!cache || lochi_pool_state(block) != POOL_USED || block->start != address)) return false;
    const size_t requested = lochi_pool_requested(block);
    lochi_pool_set_state(block, POOL_CACHED);
    if (!lochi_pool_fast_push(pool, cache, block)) {
        lochi_pool_set_state(block, POOL_USED);
        return false;
    }
    lochi_pool_set_id(block, 0);
    lochi_pool_note_free(first, requested, block->bytes);
    if (LOCHI_POOL_IS_CHECKED_HERE) lochi_pool_hide(pool, block->start, block->bytes);
    return true;
}

/* Returns the entry of the table of pages for an address; 0 for an address outside of the reservation. Raw segments
 * have no such table: their frees take the slow path. */
static inline uintptr_t lochi_pool_fast_page(const lochi_pool *pool, uintptr_t address)
{
    const size_t offset = address - pool->base;
    if (LOCHI_UNLIKELY(offset >= pool->span)) return 0;
    return atomic_load_explicit(&pool->pages[offset >> POOL_PAGE_SHIFT], memory_order_acquire);
}

/* Frees a block into the calling thread's cache. `recorded` is 0, or the number of the recorded allocator plus one;
 * `thread` is that of lochi_recorder_begin then, or NULL. The free is recorded before the thread leaves its cache, so
 * before another thread can have the block. */
static inline __attribute__((always_inline)) bool lochi_pool_free_here(lochi_pool *pool, void *pointer,
                                                                       recorder_thread *thread, uint32_t recorded)
{
    pool_cache *first = lochi_pool_enter(pool);
    if (LOCHI_UNLIKELY(!first)) return false;
    const uintptr_t address = (uintptr_t)pointer;
    const uintptr_t page = lochi_pool_fast_page(pool, address);
    bool is_freed = false;
    if (page & POOL_IS_SLAB) {
        is_freed = lochi_pool_fast_free_small(pool, first, (pool_slab *)(page - POOL_IS_SLAB), address);
    } else if (LOCHI_LIKELY(page && !(page & POOL_IS_FREED))) {
        /* The processor predicts the branches up to here, so a lead gives the record while the page is still read. */
        pool_block *lead = LOCHI_UNLIKELY(pool->leads) ? lochi_pool_find_lead(pool, address - pool->base) : NULL;
        is_freed = lochi_pool_fast_free_large(pool, first, lead ? lead : lochi_pool_page_block(page), address);
    }
    if (recorded && thread && is_freed) lochi_recorder_write_free(thread, recorded, address);
    lochi_pool_exit(first);
    return is_freed;
}

/* Frees a block into the calling thread's cache. Returns false if the call has to take the slow path; nothing has
 * happened then. */
static inline bool lochi_pool_free_fast(lochi_pool *pool, void *pointer)
{
    return lochi_pool_free_here(pool, pointer, NULL, 0);
}

/* Frees a block of a recorded allocator into the calling thread's cache. `thread` is that of lochi_recorder_begin, or
 * NULL: then the free is not recorded. Returns false if the call has to take the slow path; nothing has happened
 * then. */
static inline bool lochi_pool_free_recorded(lochi_pool *pool, void *pointer, recorder_thread *thread, uint32_t recorded)
{
    return lochi_pool_free_here(pool, pointer, thread, recorded);
}

#endif
