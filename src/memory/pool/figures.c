/* SPDX-License-Identifier: MIT */
/* Sums and peaks of a pool over all threads, at no cost for a thread that does not come near a peak.
 *
 * Each thread counts in its first cache. `room` of a figure is what the thread may still allocate before it has to
 * look at the sums of all threads. An allocation lowers it, a free raises it, and `top - room` is the thread's part
 * of the sum:
 *
 *     in use = published + the sum of (top - room) over all threads
 *
 * One thread alone has all of the figure: its `top` is its part of the peak, and rises with the use. So peaks are
 * exact.
 *
 * Several threads share the distance from what is in use to `ceiling`, which is `peak` plus a 2048th part: what is in
 * use plus the room of all threads is at most `ceiling`. A thread without room looks at the sums under a spin lock. If
 * the sum is above the ceiling, it is a new peak. The thread then gets its share of the distance to the ceiling. If the
 * others have too much of it, the thread tells them (`largest_limit` becomes 0) that their next allocation has to look
 * too, and does not count their room any more. So a peak is missed by less than a 2048th part of it, and by what other
 * threads allocate and free while the sums are read. A free that is not seen would show a peak that was none; so rooms
 * are read twice, and the larger ones count.
 *
 * Rooms are written by their thread only, and read by others at any time. `top` and `largest_limit` of several threads
 * are written under the spin lock. The lock is held for a few loads for each thread. */
#include "memory/pool/figures.h"
#include "base/hint.h"
#include "memory/pool/quick.h"
#include <sched.h>

#define FIGURES_PART 2048 /* of a peak: what may be missed of it */

static void figures_lock(lochi_pool *pool)
{
    while (atomic_flag_test_and_set_explicit(&pool->figures.is_locked, memory_order_acquire))
        sched_yield();
}

static void figures_unlock(lochi_pool *pool)
{
    atomic_flag_clear_explicit(&pool->figures.is_locked, memory_order_release);
}

static inline int64_t figures_get(const _Atomic int64_t *figure)
{
    return atomic_load_explicit(figure, memory_order_relaxed);
}

static inline void figures_set(_Atomic int64_t *figure, int64_t value)
{
    atomic_store_explicit(figure, value, memory_order_relaxed);
}

/* Adds the part of a cache to the sums. The spin lock is held, or the pool has one thread. */
static void figures_fold(pool_figures *figures, pool_cache *cache)
{
    for (int i = 0; i < POOL_METRICS; i++) {
        const int64_t top = figures_get(&cache->metrics[i].top);
        figures->published[i] += top - figures_get(&cache->metrics[i].room);
        figures_set(&cache->metrics[i].top, 0);
        figures_set(&cache->metrics[i].room, 0);
    }
}

typedef struct figures_sum {
    int64_t parts[POOL_METRICS]; /* of the other threads in what is in use */
    int64_t rooms[POOL_METRICS]; /* that they may allocate without looking */
    int64_t threads;             /* with the one that looks */
} figures_sum;

/* Sums up the caches of the other threads. The spin lock is held. */
static void figures_look(lochi_pool *pool, const pool_cache *own, figures_sum *out)
{
    *out = (figures_sum){.threads = 1};
    int64_t seen[LOCHI_SLOT_COUNT][POOL_METRICS];
    const uint32_t most = atomic_load_explicit(&pool->figures.slots, memory_order_relaxed);
    for (int pass = 0; pass < 2; pass++)
        for (uint32_t slot = 1; slot <= most; slot++) {
            const pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_acquire);
            if (!cache || cache == own) continue;
            out->threads += pass;
            const bool is_told = atomic_load_explicit(&cache->largest_limit, memory_order_relaxed) == 0;
            for (int i = 0; i < POOL_METRICS; i++) {
                int64_t room = figures_get(&cache->metrics[i].room);
                if (!pass) seen[slot][i] = room;
                if (!pass) continue;
                if (seen[slot][i] > room) room = seen[slot][i];
                out->parts[i] += figures_get(&cache->metrics[i].top) - room;
                if (!is_told && room > 0) out->rooms[i] += room;
            }
        }
}

/* Has the next allocation of every other thread look at the sums. The spin lock is held. */
static void figures_tell(lochi_pool *pool, const pool_cache *own)
{
    const uint32_t most = atomic_load_explicit(&pool->figures.slots, memory_order_relaxed);
    for (uint32_t slot = 1; slot <= most; slot++) {
        pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_acquire);
        if (cache && cache != own) atomic_store_explicit(&cache->largest_limit, 0, memory_order_relaxed);
    }
}

/* Raises the peaks to what is in use. Returns whether the other threads' rooms leave one thread at least half of its
 * share of the distance to each ceiling. The spin lock is held. */
static bool figures_raise(pool_figures *figures, const figures_sum *others)
{
    bool is_enough = true;
    for (int i = 0; i < POOL_METRICS; i++) {
        const int64_t now = figures->published[i] + others->parts[i];
        if (now > figures->peak[i]) figures->peak[i] = now;
        if (now > figures->ceiling[i]) figures->ceiling[i] = now + now / FIGURES_PART;
        const int64_t left = figures->ceiling[i] - now;
        if (others->rooms[i] && left - others->rooms[i] <= left / (2 * others->threads)) is_enough = false;
    }
    return is_enough;
}

void lochi_pool_raise(lochi_pool *pool, pool_cache *cache, size_t requested)
{
    pool_figures *figures = &pool->figures;
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
    figures_sum others;
    figures_lock(pool);
    figures_fold(figures, cache);
    figures_look(pool, cache, &others);
    if (!figures_raise(figures, &others)) {
        figures_tell(pool, cache);
        for (int i = 0; i < POOL_METRICS; i++)
            others.rooms[i] = 0;
    }
    atomic_store_explicit(&cache->largest_limit, cache->largest, memory_order_relaxed);
    for (int i = 0; i < POOL_METRICS; i++) {
        const int64_t left = figures->ceiling[i] - figures->published[i] - others.parts[i];
        const int64_t share = left / others.threads, rest = left - others.rooms[i];
        figures_set(&cache->metrics[i].top, share < rest ? share : rest);
        figures_set(&cache->metrics[i].room, share < rest ? share : rest);
    }
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
    figures_fold(&pool->figures, cache);
    figures_unlock(pool);
}

void lochi_pool_add(lochi_pool *pool, const int64_t more[POOL_METRICS])
{
    lochi_lock_assert_held(&pool->lock);
    figures_sum others;
    figures_lock(pool);
    if (!pool->is_shared) figures_raise_alone(pool);
    figures_look(pool, NULL, &others);
    for (int i = 0; i < POOL_METRICS; i++)
        pool->figures.published[i] += more[i];
    if (!figures_raise(&pool->figures, &others)) figures_tell(pool, NULL);
    figures_unlock(pool);
}

void lochi_pool_unlink_cache(lochi_pool *pool, uint32_t slot)
{
    figures_lock(pool);
    /* Relaxed: other threads read caches with one of the locks held, and the owner is the calling thread. */
    atomic_store_explicit(&pool->caches[slot + 1], NULL, memory_order_relaxed);
    figures_unlock(pool);
}

void lochi_pool_publish_all(lochi_pool *pool)
{
    for (uint32_t slot = 1; slot <= LOCHI_SLOT_SHARED; slot++)
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
