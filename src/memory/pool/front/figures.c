/* SPDX-License-Identifier: MIT */
/* Sums and peaks of a pool over all threads, at no cost for a thread that does not come near a peak.
 *
 * Each thread counts in its first cache. `room` of a figure is what the thread may still allocate before it has to
 * look at the sums. An allocation lowers it, a free raises it, and `top - room` is the thread's part of the sum:
 *
 *     in use = published + the sum of (top - room) over all threads
 *
 * One thread alone has all of the figure: its `top` is its part of the peak, and rises with the use. So peaks are
 * exact.
 *
 * Several threads share the distance from what is in use to `ceiling`, which is the peak and a 2048th part of it:
 *
 *     published + granted <= ceiling, and granted is the sum of `top` over all threads
 *
 * So what is in use cannot rise above the ceiling unseen. A thread without room gets a share of what is left. If too
 * little is left, it gathers the parts of all threads into `published`, which is what is in use then, and may be a new
 * peak. What other threads could still allocate is taken from them: they are told (`largest_limit` becomes 0) that
 * their next allocation has to look at the sums. A thread that leaves a batch to others publishes its frees, unless
 * another thread is at the sums. It gets room only if it has allocated since it got some: what a thread that only frees
 * would keep is missing to others, and they would have to gather.
 *
 * So a peak is missed by less than a 2048th part (with five threads or more, by 64 KiB for each of them if that is
 * more), and by what other threads allocate and free while one gathers. A free that is not seen would show a peak that
 * was none; so the parts are gathered twice, and the lower sum counts.
 *
 * Rooms are written by their thread only, and read by others at any time. With several threads, everything else is
 * guarded by a spin lock, which is held for a few loads for each thread. */
#include "memory/pool/front/figures.h"
#include "kit/backoff.h"
#include "kit/hint.h"
#include "memory/pool/front/fast.h"

#define FIGURES_PART 2048 /* of a peak: what may be missed of it */
/* With many threads, at least so much for each of them: otherwise a small program would gather at each allocation. */
#define FIGURES_MANY 5
#define FIGURES_BLOCKS 256
#define FIGURES_BYTES ((int64_t)64 << 10)

static bool figures_try_lock(lochi_pool *pool)
{
    return !atomic_load_explicit(&pool->figures.is_locked, memory_order_relaxed) &&
           !atomic_exchange_explicit(&pool->figures.is_locked, true, memory_order_acquire);
}

static void figures_lock(lochi_pool *pool)
{
    for (unsigned turn = 0; !figures_try_lock(pool);) /* waits with loads, so that the line stays shared */
        lochi_backoff(&turn);                         /* the holder may be descheduled */
}

static void figures_unlock(lochi_pool *pool)
{
    atomic_store_explicit(&pool->figures.is_locked, false, memory_order_release);
}

static inline int64_t figures_get(const _Atomic int64_t *figure)
{
    return atomic_load_explicit(figure, memory_order_relaxed);
}

static inline void figures_set(_Atomic int64_t *figure, int64_t value)
{
    atomic_store_explicit(figure, value, memory_order_relaxed);
}

/* Publishes the part of a cache, and takes back what its thread was granted. The thread's allocations and frees go on.
 * The spin lock is held. */
static void figures_gather(lochi_pool *pool, pool_cache *cache)
{
    pool_figures *figures = &pool->figures;
    for (int i = 0; i < POOL_METRICS; i++) {
        const int64_t top = figures_get(&cache->metrics[i].top), room = figures_get(&cache->metrics[i].room);
        figures->published[i] += top - room;
        if (i == POOL_BLOCKS) cache->gathered_blocks += top - room;
        if (pool->is_shared && !cache->is_told) figures->granted[i] -= top;
        figures_set(&cache->metrics[i].top, room);
    }
    cache->is_told = pool->is_shared;
    atomic_store_explicit(&cache->largest_limit, 0, memory_order_relaxed);
}

/* Publishes the part of a cache that only the calling thread uses now. It has no room then. The spin lock is held. */
static void figures_fold(lochi_pool *pool, pool_cache *cache)
{
    figures_gather(pool, cache);
    for (int i = 0; i < POOL_METRICS; i++) {
        figures_set(&cache->metrics[i].top, 0);
        figures_set(&cache->metrics[i].room, 0);
    }
    cache->is_told = false;
    atomic_store_explicit(&cache->largest_limit, cache->largest, memory_order_relaxed);
}

/* Returns what may be missed of a peak. The spin lock is held. */
static int64_t figures_slack(const pool_figures *figures, int metric)
{
    const int64_t part = figures->peak[metric] / FIGURES_PART;
    const int64_t each = metric == POOL_BLOCKS ? FIGURES_BLOCKS : FIGURES_BYTES;
    const int64_t least = figures->threads < FIGURES_MANY ? 0 : (int64_t)figures->threads * each;
    return part > least ? part : least;
}

/* Publishes the parts of all other threads, and raises the peaks and ceilings. The spin lock is held. */
static void figures_gather_all(lochi_pool *pool, const pool_cache *own)
{
    pool_figures *figures = &pool->figures;
    const uint32_t most = atomic_load_explicit(&figures->slots, memory_order_relaxed);
    int64_t least[POOL_METRICS] = {0};
    for (int pass = 0; pass < 2; pass++) {
        for (uint32_t slot = 1; slot <= most; slot++) {
            pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_acquire);
            if (cache && cache != own) figures_gather(pool, cache);
        }
        for (int i = 0; i < POOL_METRICS; i++)
            if (!pass || figures->published[i] < least[i]) least[i] = figures->published[i];
    }
    for (int i = 0; i < POOL_METRICS; i++) {
        if (least[i] > figures->peak[i]) figures->peak[i] = least[i];
        const int64_t ceiling = figures->peak[i] + figures_slack(figures, i);
        if (ceiling > figures->ceiling[i]) figures->ceiling[i] = ceiling;
    }
}

/* Tells whether one thread can get half of its share of what is left of each figure. Close below a ceiling it cannot: a
 * higher peak is found there, and gives all threads room again. The spin lock is held. */
static bool figures_has_left(const pool_figures *figures)
{
    bool has_left = true;
    for (int i = 0; i < POOL_METRICS; i++) {
        const int64_t all = figures->ceiling[i] - figures->published[i], left = all - figures->granted[i];
        const int64_t slack = figures_slack(figures, i), most = all > slack ? all : slack;
        has_left &= left > 0 && left >= most / (2 * (int64_t)figures->threads + 1);
    }
    return has_left;
}

/* Grants a cache without room its share of what is left, for allocations that its thread may make. The spin lock is
 * held. */
static void figures_grant(pool_figures *figures, pool_cache *cache)
{
    cache->granted_allocs = cache->allocs;
    for (int i = 0; i < POOL_METRICS; i++) {
        const int64_t all = figures->ceiling[i] - figures->published[i], left = all - figures->granted[i];
        const int64_t share = all / figures->threads < left ? all / figures->threads : left;
        if (share <= 0) continue;
        figures->granted[i] += share;
        figures_set(&cache->metrics[i].top, share);
        figures_set(&cache->metrics[i].room, share);
    }
}

void lochi_pool_raise(lochi_pool *pool, pool_cache *cache, size_t requested)
{
    if (requested > cache->largest) cache->largest = requested;
    if (!pool->is_shared) {
        atomic_store_explicit(&cache->largest_limit, cache->largest, memory_order_relaxed);
        for (int i = 0; i < POOL_METRICS; i++) {
            const int64_t room = figures_get(&cache->metrics[i].room);
            if (room >= 0) continue;
            figures_set(&cache->metrics[i].top, figures_get(&cache->metrics[i].top) - room);
            figures_set(&cache->metrics[i].room, 0);
        }
        return;
    }
    figures_lock(pool);
    figures_fold(pool, cache);
    if (!figures_has_left(&pool->figures)) figures_gather_all(pool, cache);
    figures_grant(&pool->figures, cache);
    figures_unlock(pool);
}

void lochi_pool_publish_own(lochi_pool *pool, pool_cache *cache)
{
    if (!pool->is_shared || !figures_try_lock(pool)) return;
    figures_fold(pool, cache);
    if (cache->allocs != cache->granted_allocs) figures_grant(&pool->figures, cache);
    figures_unlock(pool);
}

LOCHI_RARE loch_status lochi_pool_raise_late(lochi_pool *pool, size_t requested)
{
    pool_cache *first = lochi_pool_enter(pool);
    if (first) {
        lochi_pool_raise(pool, first, requested);
        lochi_pool_exit(first);
    }
    return LOCH_OK;
}

size_t lochi_pool_count_spare(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    figures_lock(pool);
    int64_t live = pool->figures.published[POOL_ALLOCATED];
    const uint32_t most = atomic_load_explicit(&pool->figures.slots, memory_order_relaxed);
    for (uint32_t slot = 1; slot <= most; slot++) {
        const pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed);
        if (cache)
            live +=
                figures_get(&cache->metrics[POOL_ALLOCATED].top) - figures_get(&cache->metrics[POOL_ALLOCATED].room);
    }
    figures_unlock(pool);
    return live < 0 ? pool->reserved : (size_t)live < pool->reserved ? pool->reserved - (size_t)live : 0;
}

/* Returns the blocks that the thread of a cache has allocated there, less those that it has freed. The spin lock is
 * held. */
static int64_t figures_count_blocks(const pool_cache *cache)
{
    return cache->gathered_blocks + figures_get(&cache->metrics[POOL_BLOCKS].top) -
           figures_get(&cache->metrics[POOL_BLOCKS].room);
}

/* Returns the first cache of the calling thread; NULL for none. */
static pool_cache *figures_find_own(const lochi_pool *pool)
{
    const uint32_t slot = lochi_thread_slot();
    return slot == LOCHI_SLOT_SHARED ? NULL : atomic_load_explicit(&pool->caches[slot + 1], memory_order_relaxed);
}

void lochi_pool_mark_own_blocks(lochi_pool *pool)
{
    figures_lock(pool);
    for (pool_cache *cache = figures_find_own(pool); cache; cache = cache->next)
        cache->marked_blocks = figures_count_blocks(cache);
    figures_unlock(pool);
}

bool lochi_pool_has_own_frees(lochi_pool *pool)
{
    int64_t more = 0;
    figures_lock(pool);
    for (const pool_cache *cache = figures_find_own(pool); cache; cache = cache->next)
        more += figures_count_blocks(cache) - cache->marked_blocks;
    figures_unlock(pool);
    return more < 0;
}

/* Raises the peaks to the top of the only thread. The spin lock is held. */
static void figures_raise_alone(lochi_pool *pool)
{
    pool_figures *figures = &pool->figures;
    const uint32_t most = atomic_load_explicit(&figures->slots, memory_order_relaxed);
    for (uint32_t slot = 1; slot <= most; slot++) {
        const pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed);
        for (int i = 0; cache && i < POOL_METRICS; i++) {
            const int64_t peak = figures->published[i] + figures_get(&cache->metrics[i].top);
            if (peak > figures->peak[i]) figures->peak[i] = peak;
        }
    }
}

void lochi_pool_publish(lochi_pool *pool, pool_cache *cache)
{
    lochi_lock_assert_held(&pool->lock);
    figures_lock(pool);
    if (!pool->is_shared) figures_raise_alone(pool);
    figures_fold(pool, cache);
    figures_unlock(pool);
}

void lochi_pool_add(lochi_pool *pool, const int64_t more[POOL_METRICS])
{
    lochi_lock_assert_held(&pool->lock);
    pool_figures *figures = &pool->figures;
    figures_lock(pool);
    if (!pool->is_shared) figures_raise_alone(pool);
    for (int i = 0; i < POOL_METRICS; i++) {
        figures->published[i] += more[i];
        if (!pool->is_shared && figures->published[i] > figures->peak[i]) figures->peak[i] = figures->published[i];
    }
    if (pool->is_shared && !figures_has_left(figures)) figures_gather_all(pool, NULL);
    figures_unlock(pool);
}

void lochi_pool_link_cache(lochi_pool *pool, uint32_t slot, pool_cache *cache)
{
    pool_figures *figures = &pool->figures;
    figures_lock(pool);
    if (slot + 1 > atomic_load_explicit(&figures->slots, memory_order_relaxed))
        atomic_store_explicit(&figures->slots, slot + 1, memory_order_relaxed);
    if (!atomic_load_explicit(&pool->caches[slot + 1], memory_order_relaxed)) figures->threads++;
    atomic_store_explicit(&pool->caches[slot + 1], cache, memory_order_release);
    figures_unlock(pool);
}

void lochi_pool_unlink_cache(lochi_pool *pool, uint32_t slot)
{
    figures_lock(pool);
    if (atomic_load_explicit(&pool->caches[slot + 1], memory_order_relaxed)) pool->figures.threads--;
    /* Relaxed: other threads read caches with one of the locks held, and the owner is the calling thread. */
    atomic_store_explicit(&pool->caches[slot + 1], NULL, memory_order_relaxed);
    figures_unlock(pool);
}

void lochi_pool_publish_all(lochi_pool *pool)
{
    const uint32_t top = atomic_load_explicit(&lochi_thread_slots_top, memory_order_relaxed);
    for (uint32_t slot = 1; slot <= top; slot++)
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next)
            lochi_pool_publish(pool, cache);
    for (int i = 0; i < POOL_METRICS; i++)
        if (pool->figures.published[i] > pool->figures.peak[i]) pool->figures.peak[i] = pool->figures.published[i];
}

void lochi_pool_share(lochi_pool *pool)
{
    lochi_pool_publish_all(pool);
    for (int i = 0; i < POOL_METRICS; i++)
        pool->figures.ceiling[i] = pool->figures.peak[i];
    pool->is_shared = true;
}

void lochi_pool_restart_peaks(lochi_pool *pool)
{
    lochi_pool_publish_all(pool);
    for (int i = 0; i < POOL_METRICS; i++)
        pool->figures.peak[i] = pool->figures.ceiling[i] = pool->figures.published[i];
}
