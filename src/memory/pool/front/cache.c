/* SPDX-License-Identifier: MIT */
/* Fills, counts and flushes the threads' caches, with the pool's lock held. The fast path (fast.h) uses the caches
 * without the lock. */
#include "memory/pool/front/cache.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/room.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/front/figures.h"
#include "memory/pool/front/gate.h"
#include "memory/pool/front/fast.h"
#include "memory/pool/front/transfer.h"
#include <string.h>

#define CACHE_CLASS_BYTES ((size_t)64 << 10) /* cached by a thread for one class, at most */
#define CACHE_CLASS_MIN 4
#define CACHE_CLASS_MAX 64

/* --- counting --- */

void lochi_pool_count_alloc(lochi_pool *pool, pool_cache *cache, size_t requested, size_t allocated)
{
    lochi_lock_assert_held(&pool->lock);
    if (cache) {
        if (lochi_pool_note_alloc(cache, requested, allocated)) lochi_pool_raise(pool, cache, requested);
        return;
    }
    const int64_t more[POOL_METRICS] = {1, (int64_t)requested, (int64_t)allocated};
    pool->counts.allocs++;
    lochi_room_count_freed(-1);
    if (requested > pool->counts.largest) pool->counts.largest = requested;
    lochi_pool_add(pool, more);
}

void lochi_pool_count_free(lochi_pool *pool, pool_cache *cache, size_t requested, size_t allocated)
{
    lochi_lock_assert_held(&pool->lock);
    const int64_t more[POOL_METRICS] = {-1, -(int64_t)requested, -(int64_t)allocated};
    if (!cache) {
        lochi_room_count_freed(1);
        lochi_pool_add(pool, more);
        return;
    }
    lochi_pool_note_free(cache, requested, allocated);
    if (pool->is_shared) lochi_pool_publish_own(pool, cache);
}

void lochi_pool_count_change(lochi_pool *pool, pool_cache *cache, int64_t requested, int64_t allocated)
{
    lochi_lock_assert_held(&pool->lock);
    const int64_t more[POOL_METRICS] = {0, requested, allocated};
    if (cache) lochi_pool_publish(pool, cache);
    lochi_pool_add(pool, more);
}

/* --- finding and filling --- */

/* Lets a cache serve its lane's stream on the fast path, without the lock. The stream may be a new one. A stream
 * that can be captured is asked for its capture state at every allocation, except in a pool of graphs, where captured
 * work uses the memory of the stream, and in a pool that has no requests of captures. */
static pool_cache *cache_serve(const lochi_pool *pool, pool_cache *cache)
{
    const pool_lane *lane = cache->lane;
    const bool is_asked = pool->policy.is_asking && lane->stream != pool->default_stream;
    cache->stream = lane->is_closed || is_asked ? NULL : lane->stream;
    cache->transfer = lane->transfer;
    return cache;
}

/* Notes that a thread uses the pool. */
static void cache_note_thread(lochi_pool *pool, uint32_t slot)
{
    const bool is_first = !pool->cache_slot || pool->cache_slot == slot + 1;
    pool->cache_slot = slot + 1;
    if (pool->is_shared || (is_first && slot != LOCHI_SLOT_SHARED)) return;
    lochi_pool_stop(pool);
    lochi_pool_share(pool);
    lochi_pool_go(pool);
}

pool_cache *lochi_pool_cache(lochi_pool *pool, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    const uint32_t slot = lochi_thread_slot();
    if (slot == LOCHI_SLOT_SHARED) {
        cache_note_thread(pool, slot);
        return NULL;
    }
    if (LOCHI_UNLIKELY(lochi_session_top) && lochi_session_is_in(pool->allocator)) {
        cache_note_thread(pool, slot);
        return NULL;
    }
    pool_cache *first = atomic_load_explicit(&pool->caches[slot + 1], memory_order_relaxed);
    if (first && first->lane == lane) return cache_serve(pool, first);
    if (first) lochi_pool_publish(pool, first); /* a thread counts in its first cache */
    pool_cache **link = first ? &first->next : NULL;
    while (link && *link && (*link)->lane != lane)
        link = &(*link)->next;
    pool_cache *cache = link ? *link : NULL;
    if (cache) {
        *link = cache->next;
    } else {
        cache = lochi_zalloc_aligned(_Alignof(pool_cache), sizeof *cache);
        if (!cache) return NULL;
        cache->lane = lane;
        cache_note_thread(pool, slot);
    }
    cache->next = first;
    lochi_pool_link_cache(pool, slot, cache);
    return cache_serve(pool, cache);
}

/* Gives the `count` oldest blocks of a stack back to their slabs. */
static void cache_spill(lochi_pool *pool, pool_stack *stack, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        const uintptr_t page = lochi_pool_find_page(pool, (uintptr_t)stack->entries[i].address);
        lochi_pool_slab_give(pool, lochi_pool_page_slab(page), stack->entries[i].word);
    }
    stack->count -= count;
    memmove(stack->entries, stack->entries + count, stack->count * sizeof *stack->entries);
}

static uint32_t cache_capacity(const lochi_pool *pool, uint32_t class)
{
    const size_t count = CACHE_CLASS_BYTES / pool->class_bytes[class];
    return (uint32_t)(count < CACHE_CLASS_MIN ? CACHE_CLASS_MIN : count > CACHE_CLASS_MAX ? CACHE_CLASS_MAX : count);
}

static bool cache_make_stack(const lochi_pool *pool, pool_cache *cache, uint32_t class)
{
    pool_stack *stack = &cache->stacks[class];
    if (stack->entries) return true;
    const uint32_t capacity = cache_capacity(pool, class);
    stack->entries = lochi_zalloc_aligned(64, capacity * sizeof *stack->entries); /* on lines of their own */
    if (stack->entries) {
        stack->capacity = capacity;
        stack->bytes = pool->class_bytes[class];
    }
    return stack->entries != NULL;
}

loch_status lochi_pool_cache_take(const lochi_pool *pool, pool_cache *cache, uint32_t class, pool_entry *out)
{
    lochi_lock_assert_held(&pool->lock);
    pool_stack *stack = &cache->stacks[class];
    if (!stack->count) {
        if (!cache_make_stack(pool, cache, class)) return LOCH_FAIL(HOST_MEMORY, "no host memory for a thread's cache");
        stack->count = (uint32_t)lochi_pool_slab_take(cache->lane, class, stack->entries, (stack->capacity + 1) / 2);
        for (uint32_t i = 0; i < stack->count / 2;
             i++) { /* reverse the stack: the lowest address is handed out first */
            const pool_entry entry = stack->entries[i];
            stack->entries[i] = stack->entries[stack->count - 1 - i];
            stack->entries[stack->count - 1 - i] = entry;
        }
    }
    *out = stack->entries[--stack->count];
    return LOCH_OK;
}

bool lochi_pool_cache_give(lochi_pool *pool, pool_cache *cache, pool_slab *slab, pool_entry entry)
{
    lochi_lock_assert_held(&pool->lock);
    pool_stack *stack = &cache->stacks[slab->class];
    if (!cache_make_stack(pool, cache, slab->class)) return false;
    if (stack->count == stack->capacity) {
        lochi_pool_open_transfer(pool, cache->lane, stack->bytes);
        cache_spill(pool, stack, (stack->capacity + 1) / 2);
    }
    stack->entries[stack->count++] = entry;
    return true;
}

/* --- giving back --- */

bool lochi_pool_flush_last(lochi_pool *pool, pool_cache *cache)
{
    lochi_lock_assert_held(&pool->lock);
    pool_block *last = cache->last;
    if (!last) return false;
    cache->last = NULL;
    atomic_store_explicit(&cache->last_bytes, 0, memory_order_relaxed);
    lochi_pool_put_block(pool, last);
    return true;
}

bool lochi_pool_flush_bins(lochi_pool *pool, pool_cache *cache)
{
    lochi_lock_assert_held(&pool->lock);
    if (!cache->large_bytes) return false;
    pool_block *all = NULL, **end = &all; /* one list, while the neighbours of all blocks are fetched */
    for (unsigned bin = 0; cache->large_bytes; bin++) {
        pool_block *block = cache->large[bin];
        if (!block) continue;
        cache->large[bin] = NULL;
        *end = block;
        for (; block; block = block->list_next) {
            lochi_pool_fetch_neighbours(block);
            cache->large_bytes -= block->bytes;
            end = &block->list_next;
        }
    }
    while (all) {
        pool_block *block = all;
        all = block->list_next;
        lochi_pool_put_block(pool, block);
    }
    return true;
}

bool lochi_pool_flush(lochi_pool *pool, pool_cache *cache)
{
    lochi_lock_assert_held(&pool->lock);
    bool has_any = lochi_pool_flush_last(pool, cache);
    has_any |= lochi_pool_flush_bins(pool, cache);
    for (uint32_t class = 0; class < pool->classes; class ++) {
        pool_stack *stack = &cache->stacks[class];
        if (!stack->count) continue;
        cache_spill(pool, stack, stack->count);
        has_any = true;
    }
    return has_any;
}

bool lochi_pool_flush_all(lochi_pool *pool, bool (*flush)(lochi_pool *pool, pool_cache *cache))
{
    lochi_lock_assert_held(&pool->lock);
    bool has_any = false;
    for (uint32_t slot = 1; slot <= LOCHI_SLOT_SHARED; slot++)
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next)
            has_any |= flush(pool, cache);
    return has_any;
}

void lochi_pool_flush_threads(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_stop(pool);
    lochi_pool_flush_all(pool, lochi_pool_flush);
    lochi_pool_flush_transfers(pool);
    lochi_pool_go(pool);
}

/* --- blocks above slabs' sizes --- */

pool_block *lochi_pool_cache_take_block(pool_cache *cache, size_t bytes)
{
    return lochi_pool_fast_pop(cache, bytes);
}

bool lochi_pool_cache_give_block(lochi_pool *pool, pool_cache *cache, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_set_state(block, POOL_CACHED);
    if (lochi_pool_fast_push(pool, cache, block)) return true;
    if (block->bytes > POOL_LARGE_MAX) {
        lochi_pool_flush_last(pool, cache);
    } else {
        lochi_pool_open_transfer(pool, cache->lane, block->bytes);
        lochi_pool_flush_bins(pool, cache);
    }
    return lochi_pool_fast_push(pool, cache, block);
}

size_t lochi_pool_count_last(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    size_t bytes = 0;
    for (uint32_t slot = 1; slot <= LOCHI_SLOT_SHARED; slot++)
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next)
            bytes += atomic_load_explicit(&cache->last_bytes, memory_order_relaxed);
    return bytes;
}

size_t lochi_pool_count_cached(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    size_t bytes = lochi_pool_count_last(pool) + atomic_load_explicit(&pool->transfer_bytes, memory_order_relaxed);
    for (uint32_t slot = 1; slot <= LOCHI_SLOT_SHARED; slot++)
        for (const pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next) {
            bytes += cache->large_bytes;
            for (uint32_t class = 0; class < pool->classes; class ++)
                bytes += (size_t)cache->stacks[class].count * pool->class_bytes[class];
        }
    return bytes;
}

/* --- ends --- */

void lochi_pool_forget_stream(lochi_pool *pool, const loch_stream *stream)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_pool_stop(pool);
    for (uint32_t slot = 1; slot <= LOCHI_SLOT_SHARED; slot++)
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next) {
            if (cache->lane->stream != stream) continue;
            lochi_pool_flush(pool, cache);
            cache->stream = NULL;
        }
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next)
        if (lane->stream == stream) lochi_pool_flush_transfer(pool, lane);
    lochi_pool_go(pool);
}

void lochi_pool_end_caches(const lochi_pool *pool, pool_cache *cache)
{
    while (cache) {
        pool_cache *next = cache->next;
        for (uint32_t class = 0; class < pool->classes; class ++)
            lochi_free_aligned(cache->stacks[class].entries);
        lochi_free_aligned(cache);
        cache = next;
    }
}

pool_cache *lochi_pool_take_caches(lochi_pool *pool, uint32_t slot)
{
    lochi_lock_assert_held(&pool->lock);
    pool_cache *first = atomic_load_explicit(&pool->caches[slot + 1], memory_order_relaxed);
    for (pool_cache *cache = first; cache; cache = cache->next) {
        lochi_pool_flush(pool, cache);
        lochi_pool_publish(pool, cache);
        pool->counts.allocs += cache->allocs;
        if (cache->largest > pool->counts.largest) pool->counts.largest = cache->largest;
    }
    lochi_pool_unlink_cache(pool, slot);
    return first;
}

void lochi_pool_close_caches(lochi_pool *pool)
{
    for (uint32_t slot = 1; slot <= LOCHI_SLOT_SHARED; slot++)
        lochi_pool_end_caches(pool, atomic_load_explicit(&pool->caches[slot], memory_order_relaxed));
}
