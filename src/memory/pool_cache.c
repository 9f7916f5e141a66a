/* SPDX-License-Identifier: MIT */
/* What single threads keep: small blocks by class, and large ones just freed by size, unmerged. A call that finds what it
 * wants there takes no lock and touches no line that other threads write.
 *
 * The thread says that it is inside (`busy`), crosses the light fence and looks at the gate; whoever closes the gate
 * crosses the heavy fence and waits until nobody is inside. So either the thread sees the closed gate and takes the
 * long way, or it is waited for. */
#include "base/fail.h"
#include "base/fence.h"
#include "base/heap.h"
#include "base/hint.h"
#include "memory/pool_inside.h"
#include <sched.h>
#include <string.h>

#define CACHE_CLASS_BYTES ((size_t)64 << 10) /* of one class that a thread keeps */
#define CACHE_CLASS_MIN 4
#define CACHE_CLASS_MAX 64

/* --- entering and leaving --- */

static inline bool cache_enter(lochi_pool *pool, pool_cache *cache)
{
    atomic_store_explicit(&cache->busy, true, memory_order_relaxed);
    lochi_fence_light();
    if (LOCHI_LIKELY(atomic_load_explicit(&pool->gate, memory_order_relaxed) == 0)) return true;
    atomic_store_explicit(&cache->busy, false, memory_order_release);
    return false;
}

static inline void cache_leave(pool_cache *cache)
{
    atomic_store_explicit(&cache->busy, false, memory_order_release);
}

static inline pool_cache *cache_of_thread(lochi_pool *pool)
{
    const uint32_t slot = lochi_thread_slot();
    if (LOCHI_UNLIKELY(slot == LOCHI_SLOT_SHARED)) return NULL;
    return atomic_load_explicit(&pool->caches[slot], memory_order_acquire);
}

void lochi_pool_close_gate(lochi_pool *pool)
{
    atomic_fetch_add_explicit(&pool->gate, 1, memory_order_seq_cst);
    lochi_fence_heavy();
    for (uint32_t slot = 0; slot < LOCHI_SLOT_SHARED; slot++)
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_acquire); cache;
             cache = cache->next)
            while (atomic_load_explicit(&cache->busy, memory_order_acquire))
                sched_yield();
}

void lochi_pool_open_gate(lochi_pool *pool)
{
    atomic_fetch_sub_explicit(&pool->gate, 1, memory_order_release);
}

void lochi_pool_stop(lochi_pool *pool)
{
    lochi_pool_close_gate(pool);
}

void lochi_pool_go(lochi_pool *pool)
{
    lochi_pool_open_gate(pool);
}

/* --- counting --- */

static inline void cache_count_alloc(pool_cache *cache, size_t requested, size_t allocated)
{
    cache->allocs++;
    if (requested > cache->largest) cache->largest = requested;
    const int64_t more[POOL_METRICS] = {1, (int64_t)requested, (int64_t)allocated};
    for (int i = 0; i < POOL_METRICS; i++) {
        cache->now[i] += more[i];
        if (cache->now[i] > cache->top[i]) cache->top[i] = cache->now[i];
    }
}

static inline void cache_count_free(pool_cache *cache, size_t requested, size_t allocated)
{
    cache->frees++;
    cache->now[POOL_BLOCKS]--;
    cache->now[POOL_REQUESTED] -= (int64_t)requested;
    cache->now[POOL_ALLOCATED] -= (int64_t)allocated;
}

/* Whether a thread has so much unpublished that others' peaks would be far off. */
static inline bool cache_is_far(const lochi_pool *pool, const pool_cache *cache)
{
    return pool->is_shared && (cache->now[POOL_ALLOCATED] > pool->batch || cache->now[POOL_ALLOCATED] < -pool->batch);
}

void lochi_pool_publish(lochi_pool *pool, pool_cache *cache)
{
    for (int i = 0; i < POOL_METRICS; i++) {
        if (pool->published[i] + cache->top[i] > pool->top[i]) pool->top[i] = pool->published[i] + cache->top[i];
        pool->published[i] += cache->now[i];
        cache->now[i] = cache->top[i] = 0;
    }
}

void lochi_pool_count_alloc(lochi_pool *pool, pool_cache *cache, size_t requested, size_t allocated)
{
    if (cache) {
        cache_count_alloc(cache, requested, allocated);
        if (cache_is_far(pool, cache)) lochi_pool_publish(pool, cache);
        return;
    }
    const int64_t more[POOL_METRICS] = {1, (int64_t)requested, (int64_t)allocated};
    pool->allocs++;
    if (requested > pool->largest) pool->largest = requested;
    for (int i = 0; i < POOL_METRICS; i++) {
        pool->published[i] += more[i];
        if (pool->published[i] > pool->top[i]) pool->top[i] = pool->published[i];
    }
}

void lochi_pool_count_free(lochi_pool *pool, pool_cache *cache, size_t requested, size_t allocated)
{
    if (cache) {
        cache_count_free(cache, requested, allocated);
        if (cache_is_far(pool, cache)) lochi_pool_publish(pool, cache);
        return;
    }
    pool->frees++;
    pool->published[POOL_BLOCKS]--;
    pool->published[POOL_REQUESTED] -= (int64_t)requested;
    pool->published[POOL_ALLOCATED] -= (int64_t)allocated;
}

void lochi_pool_count_change(lochi_pool *pool, pool_cache *cache, int64_t requested, int64_t allocated)
{
    if (cache) lochi_pool_publish(pool, cache);
    pool->published[POOL_REQUESTED] += requested;
    pool->published[POOL_ALLOCATED] += allocated;
    for (int i = 0; i < POOL_METRICS; i++)
        if (pool->published[i] > pool->top[i]) pool->top[i] = pool->published[i];
}

/* --- large blocks by size --- */

static inline unsigned cache_quick_bin(size_t bytes)
{
    const size_t units = bytes >> POOL_UNIT_SHIFT;
    if (units < POOL_QUICK_DIRECT) return (unsigned)units;
    return POOL_QUICK_DIRECT + (unsigned)((units * 0x9e3779b97f4a7c15u) >> 58);
}

/* Takes a kept block of that size out; NULL when there is none. */
static inline pool_block *cache_pop_quick(pool_cache *cache, size_t bytes)
{
    const unsigned bin = cache_quick_bin(bytes);
    pool_block **link = &cache->quick[bin];
    pool_block *block = *link;
    if (bin < POOL_QUICK_DIRECT) {
        if (!block) return NULL;
        *link = block->list_next;
        cache->medium_bytes -= bytes;
        return block;
    }
    for (unsigned looks = 0; block && looks < POOL_QUICK_LOOKS; link = &block->list_next, block = *link, looks++) {
        if (block->bytes != bytes) continue;
        *link = block->list_next;
        cache->large_count--;
        atomic_store_explicit(&cache->large_bytes,
                              atomic_load_explicit(&cache->large_bytes, memory_order_relaxed) - bytes,
                              memory_order_relaxed);
        return block;
    }
    return NULL;
}

static inline bool cache_has_room(const lochi_pool *pool, const pool_cache *cache, size_t bytes)
{
    if (bytes < POOL_QUICK_DIRECT << POOL_UNIT_SHIFT) return cache->medium_bytes + bytes <= POOL_QUICK_MEDIUM_MAX;
    return cache->large_count < POOL_QUICK_LARGE_MAX && !pool->is_capped;
}

static inline void cache_push_quick(pool_cache *cache, pool_block *block)
{
    const unsigned bin = cache_quick_bin(block->bytes);
    block->list_next = cache->quick[bin];
    cache->quick[bin] = block;
    if (bin < POOL_QUICK_DIRECT) {
        cache->medium_bytes += block->bytes;
        return;
    }
    cache->large_count++;
    atomic_store_explicit(&cache->large_bytes,
                          atomic_load_explicit(&cache->large_bytes, memory_order_relaxed) + block->bytes,
                          memory_order_relaxed);
}

/* --- the short ways --- */

static inline void *cache_alloc_small(const lochi_pool *pool, pool_cache *cache, const loch_request *request)
{
    const uint32_t class = pool->class_of[(request->bytes + (1 << POOL_STEP_SHIFT) - 1) >> POOL_STEP_SHIFT];
    pool_stack *stack = &cache->stacks[class];
    if (LOCHI_UNLIKELY(!stack->count)) return NULL;
    const pool_entry entry = stack->entries[--stack->count];
    atomic_store_explicit(entry.word, POOL_WORD_LIVE | request->bytes, memory_order_relaxed);
    cache_count_alloc(cache, request->bytes, pool->class_bytes[class]);
    lochi_pool_show(pool, (uintptr_t)entry.address, request->bytes);
    return entry.address;
}

static inline void *cache_alloc_large(const lochi_pool *pool, pool_cache *cache, const loch_request *request)
{
    pool_block *block = cache_pop_quick(cache, (request->bytes + POOL_UNIT - 1) & ~(POOL_UNIT - 1));
    if (!block) return NULL;
    block->requested = request->bytes;
    lochi_pool_set_state(block, POOL_USED);
    cache_count_alloc(cache, request->bytes, block->bytes);
    lochi_pool_show(pool, block->start, request->bytes);
    return (void *)block->start;
}

void *lochi_pool_alloc_quickly(lochi_pool *pool, const loch_request *request)
{
    pool_cache *cache = cache_of_thread(pool);
    const loch_stream *stream = request->stream ? request->stream : pool->default_stream;
    if (LOCHI_UNLIKELY(!cache || request->alignment > pool->unit || !cache_enter(pool, cache))) return NULL;
    void *address = NULL;
    if (LOCHI_LIKELY(cache->stream == stream))
        address = request->bytes <= POOL_SMALL_MAX ? cache_alloc_small(pool, cache, request)
                                                   : cache_alloc_large(pool, cache, request);
    cache_leave(cache);
    return address;
}

static inline bool cache_free_small(const lochi_pool *pool, pool_cache *cache, pool_block *block, uintptr_t address)
{
    pool_slab *slab = block->slab;
    pool_word *word = lochi_pool_slab_word(slab, address);
    if (LOCHI_UNLIKELY(!word || block->lane != cache->lane)) return false;
    const uint64_t live = atomic_load_explicit(word, memory_order_relaxed);
    pool_stack *stack = &cache->stacks[slab->class];
    /* live, and nothing else above the size: no tag, no further streams */
    if (LOCHI_UNLIKELY(live >> POOL_WORD_TAG_SHIFT != POOL_WORD_LIVE >> POOL_WORD_TAG_SHIFT ||
                       stack->count == stack->capacity))
        return false;
    atomic_store_explicit(word, POOL_WORD_FREED, memory_order_relaxed);
    stack->entries[stack->count++] = (pool_entry){(void *)address, word};
    cache_count_free(cache, live & POOL_WORD_BYTES, slab->object_bytes);
    lochi_pool_hide(pool, address, slab->object_bytes);
    return true;
}

static inline bool cache_free_large(const lochi_pool *pool, pool_cache *cache, pool_block *block, uintptr_t address)
{
    if (LOCHI_UNLIKELY(lochi_pool_state(block) != POOL_USED || block->start != address || block->lane != cache->lane ||
                       block->is_elsewhere || block->tag))
        return false;
    if (LOCHI_UNLIKELY(!cache_has_room(pool, cache, block->bytes))) return false;
    lochi_pool_set_state(block, POOL_CACHED);
    cache_count_free(cache, block->requested, block->bytes);
    cache_push_quick(cache, block);
    lochi_pool_hide(pool, block->start, block->bytes);
    return true;
}

bool lochi_pool_free_quickly(lochi_pool *pool, void *pointer)
{
    pool_cache *cache = cache_of_thread(pool);
    if (LOCHI_UNLIKELY(!cache || !cache_enter(pool, cache))) return false;
    const uintptr_t address = (uintptr_t)pointer, page = lochi_pool_find_page(pool, address);
    bool is_freed = false;
    if (LOCHI_LIKELY(page && !(page & 1) && cache->stream)) {
        pool_block *block = (pool_block *)page;
        is_freed = lochi_pool_state(block) == POOL_SLAB ? cache_free_small(pool, cache, block, address)
                                                        : cache_free_large(pool, cache, block, address);
    }
    cache_leave(cache);
    return is_freed;
}

/* --- the long ways, under the lock --- */

pool_cache *lochi_pool_cache(lochi_pool *pool, pool_lane *lane)
{
    const uint32_t slot = lochi_thread_slot();
    if (slot == LOCHI_SLOT_SHARED) {
        pool->is_shared = true;
        return NULL;
    }
    pool_cache *first = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed);
    if (first && first->lane == lane) return first;
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
        cache->slot = slot;
        /* Streams that may be captured are asked about it at every allocation. */
        if (!pool->is_watched || lane->stream == pool->default_stream) cache->stream = lane->stream;
        if (pool->cache_slot && pool->cache_slot != slot + 1) pool->is_shared = true;
        pool->cache_slot = slot + 1;
    }
    cache->next = first;
    atomic_store_explicit(&pool->caches[slot], cache, memory_order_release);
    return cache;
}

/* Gives the `count` oldest of a stack back to their slabs. */
static void cache_spill(lochi_pool *pool, pool_stack *stack, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        pool_block *block = (pool_block *)lochi_pool_find_page(pool, (uintptr_t)stack->entries[i].address);
        lochi_pool_slab_give(pool, block->slab, stack->entries[i].word);
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
    stack->entries = lochi_alloc_array(capacity, sizeof *stack->entries);
    if (stack->entries) stack->capacity = capacity;
    return stack->entries != NULL;
}

loch_status lochi_pool_cache_take(lochi_pool *pool, pool_cache *cache, uint32_t class, uint32_t flags, pool_entry *out)
{
    pool_stack *stack = &cache->stacks[class];
    if (!stack->count) {
        if (!cache_make_stack(pool, cache, class)) return LOCH_FAIL(HOST_MEMORY, "no host memory for a thread's cache");
        size_t taken;
        LOCH_TRY_RETURN(lochi_pool_slab_take(pool, cache->lane, class, flags, stack->entries,
                                             (stack->capacity + 1) / 2, &taken));
        stack->count = (uint32_t)taken;
        for (uint32_t i = 0; i < stack->count / 2; i++) { /* the lowest address is handed out first */
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
    pool_stack *stack = &cache->stacks[slab->class];
    if (!cache_make_stack(pool, cache, slab->class)) return false;
    if (stack->count == stack->capacity) cache_spill(pool, stack, (stack->capacity + 1) / 2);
    stack->entries[stack->count++] = entry;
    return true;
}

pool_block *lochi_pool_cache_take_large(pool_cache *cache, size_t bytes)
{
    return cache_pop_quick(cache, bytes);
}

bool lochi_pool_cache_give_large(lochi_pool *pool, pool_cache *cache, pool_block *block)
{
    if (pool->is_capped && block->bytes >= POOL_QUICK_DIRECT << POOL_UNIT_SHIFT) return false;
    if (!cache_has_room(pool, cache, block->bytes)) {
        if (block->bytes >= POOL_QUICK_DIRECT << POOL_UNIT_SHIFT)
            lochi_pool_flush_large(pool, cache);
        else
            lochi_pool_flush_medium(pool, cache);
    }
    lochi_pool_set_state(block, POOL_CACHED);
    cache_push_quick(cache, block);
    return true;
}

/* --- giving back --- */

static bool cache_flush_bins(lochi_pool *pool, pool_cache *cache, unsigned from, unsigned to)
{
    bool has_any = false;
    for (unsigned bin = from; bin < to; bin++)
        while (cache->quick[bin]) {
            pool_block *block = cache->quick[bin];
            cache->quick[bin] = block->list_next;
            lochi_pool_put_block(pool, block);
            has_any = true;
        }
    return has_any;
}

bool lochi_pool_flush_large(lochi_pool *pool, pool_cache *cache)
{
    if (!cache->large_count) return false;
    cache->large_count = 0;
    atomic_store_explicit(&cache->large_bytes, 0, memory_order_relaxed);
    return cache_flush_bins(pool, cache, POOL_QUICK_DIRECT, POOL_QUICK_BINS);
}

bool lochi_pool_flush_medium(lochi_pool *pool, pool_cache *cache)
{
    if (!cache->medium_bytes) return false;
    cache->medium_bytes = 0;
    return cache_flush_bins(pool, cache, 0, POOL_QUICK_DIRECT);
}

bool lochi_pool_flush(lochi_pool *pool, pool_cache *cache)
{
    bool has_any = lochi_pool_flush_large(pool, cache) | lochi_pool_flush_medium(pool, cache);
    for (uint32_t class = 0; class < pool->classes; class++) {
        pool_stack *stack = &cache->stacks[class];
        if (!stack->count) continue;
        cache_spill(pool, stack, stack->count);
        has_any = true;
    }
    return has_any;
}

bool lochi_pool_flush_all(lochi_pool *pool, bool (*flush)(lochi_pool *pool, pool_cache *cache))
{
    bool has_any = false;
    for (uint32_t slot = 0; slot < LOCHI_SLOT_SHARED; slot++)
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next)
            has_any |= flush(pool, cache);
    return has_any;
}

size_t lochi_pool_count_cached(lochi_pool *pool, bool is_large)
{
    size_t bytes = 0;
    for (uint32_t slot = 0; slot < LOCHI_SLOT_SHARED; slot++)
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next) {
            bytes += atomic_load_explicit(&cache->large_bytes, memory_order_relaxed);
            if (is_large) continue;
            bytes += cache->medium_bytes;
            for (uint32_t class = 0; class < pool->classes; class++)
                bytes += (size_t)cache->stacks[class].count * pool->class_bytes[class];
        }
    return bytes;
}

void lochi_pool_forget_stream(lochi_pool *pool, const loch_stream *stream)
{
    lochi_pool_stop(pool);
    for (uint32_t slot = 0; slot < LOCHI_SLOT_SHARED; slot++)
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next) {
            if (cache->lane->stream != stream) continue;
            lochi_pool_flush(pool, cache);
            cache->stream = NULL;
        }
    lochi_pool_go(pool);
}

void lochi_pool_close_caches(lochi_pool *pool)
{
    for (uint32_t slot = 0; slot < LOCHI_SLOT_SHARED; slot++) {
        pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed);
        while (cache) {
            pool_cache *next = cache->next;
            for (uint32_t class = 0; class < pool->classes; class++)
                lochi_free(cache->stacks[class].entries);
            lochi_free_aligned(cache);
            cache = next;
        }
    }
}
