/* SPDX-License-Identifier: MIT */
/* Counts what a pool, its parents and its children hold together. Each related pool has a sum: the bytes that it
 * holds itself, and for each child the larger of the child's sum and the child's minimum. Memory is counted in the
 * pool and in all pools above it before it is taken from the device, under one lock. So no sum exceeds the limit of
 * its pool, and a promised minimum is always available:
 *
 *   sum(pool) = reserved(pool) + sum over children of max(sum(child), minimum(child)) <= limit(pool)
 *
 * A child retains the allocator of its parent, so all pools above a pool exist as long as the pool. */
#include "memory/pool/limits/family.h"
#include "base/fail.h"
#include "kit/text.h"
#include "memory/pool/state/state.h"
#include "memory/pool/pool.h"

/* Guards sums, limits and lists of children of all pools. Held for a few additions only. */
static lochi_lock family_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_FAMILY);

static uintptr_t family_number; /* children made so far */

/* Returns the first child made after number `number`; NULL for none. */
static const lochi_pool *family_next(const lochi_pool *pool, uintptr_t number)
{
    lochi_lock_assert_held(&family_lock);
    const lochi_tree_node *node = lochi_tree_at_or_above(&pool->family.children, number + 1);
    return node ? LOCHI_CONTAINER(node, lochi_pool, family.node) : NULL;
}

/* --- sums --- */

/* Returns the parent that counts the memory of a pool; NULL for none. */
static lochi_pool *family_counter(const lochi_pool *pool)
{
    return pool->family.is_counted ? pool->family.parent : NULL;
}

/* Returns the bytes that a pool contributes to the sum of its parent. */
static size_t family_share(const lochi_pool *pool, int sum)
{
    const size_t bytes = pool->family.sums[sum];
    return bytes > pool->family.minimum ? bytes : pool->family.minimum;
}

static void family_raise(lochi_pool *pool, int sum, size_t bytes)
{
    lochi_lock_assert_held(&family_lock);
    for (; pool && bytes; pool = family_counter(pool)) {
        const size_t before = family_share(pool, sum);
        pool->family.sums[sum] += bytes;
        bytes = family_share(pool, sum) - before;
    }
}

static void family_lower(lochi_pool *pool, int sum, size_t bytes)
{
    lochi_lock_assert_held(&family_lock);
    for (; pool && bytes; pool = family_counter(pool)) {
        const size_t before = family_share(pool, sum);
        pool->family.sums[sum] -= bytes;
        bytes = before - family_share(pool, sum);
    }
}

/* Returns the part of the minimum that the pool does not hold yet. A claim needs no room in the parent for these
 * bytes. */
static size_t family_spare(const lochi_pool *pool)
{
    return family_share(pool, POOL_HELD) - pool->family.sums[POOL_HELD];
}

/* Returns the limit of a pool; SIZE_MAX for none. A family without a limit has the memory of the device as its
 * limit, so that minima have a meaning. */
static size_t family_limit(const lochi_pool *pool)
{
    if (pool->family.limit) return pool->family.limit;
    const bool is_device = !family_counter(pool) && pool->kind == LOCH_MEMORY_DEVICE;
    return is_device && pool->device->properties.total_bytes ? pool->device->properties.total_bytes : SIZE_MAX;
}

/* Returns the bytes that the pool's own limit leaves. */
static size_t family_left(const lochi_pool *pool)
{
    const size_t limit = family_limit(pool), held = pool->family.sums[POOL_HELD];
    return limit == SIZE_MAX ? SIZE_MAX : limit > held ? limit - held : 0;
}

static size_t family_room(const lochi_pool *pool)
{
    lochi_lock_assert_held(&family_lock);
    size_t room = SIZE_MAX, spare = 0;
    for (; pool; pool = family_counter(pool)) {
        const size_t left = family_left(pool);
        if (left < SIZE_MAX - spare && left + spare < room) room = left + spare;
        spare += family_spare(pool);
    }
    return room;
}

/* --- for the pool's other parts --- */

size_t lochi_family_room(const lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_lock_take(&family_lock);
    const size_t room = family_room(pool);
    lochi_lock_drop(&family_lock);
    return room;
}

bool lochi_family_claim(lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_lock_take(&family_lock);
    const bool fits = bytes <= family_room(pool);
    if (fits) family_raise(pool, POOL_HELD, bytes);
    lochi_lock_drop(&family_lock);
    return fits;
}

void lochi_family_unclaim(lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_lock_take(&family_lock);
    family_lower(pool, POOL_HELD, bytes);
    lochi_lock_drop(&family_lock);
}

size_t lochi_family_excess(const lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    size_t excess = 0;
    lochi_lock_take(&family_lock);
    for (; pool; pool = family_counter(pool)) {
        const size_t limit = pool->family.limit, held = pool->family.sums[POOL_HELD];
        if (limit && held > limit && held - limit > excess) excess = held - limit;
    }
    lochi_lock_drop(&family_lock);
    return excess;
}

loch_status lochi_family_set_limit(lochi_pool *pool, size_t limit_bytes, size_t ceiling)
{
    lochi_lock_assert_held(&pool->lock);
    lochi_lock_take(&family_lock);
    const size_t promised = family_share(pool, POOL_PROMISED);
    const bool fits = !limit_bytes || limit_bytes >= promised;
    if (fits) {
        pool->family.limit = limit_bytes;
        pool->family.ceiling = ceiling;
    }
    lochi_lock_drop(&family_lock);
    if (fits) return LOCH_OK;
    return LOCH_FAIL(LIMIT, "a limit of %s is less than the %s promised to children as minima", LOCHI_SIZE(limit_bytes),
                     LOCHI_SIZE(promised));
}

/* Finds the nearest or the topmost pool whose limit does not leave `needed` more bytes for `pool`. NULL for none. */
static lochi_pool *family_find_full(lochi_pool *pool, size_t needed, bool is_topmost)
{
    lochi_lock_assert_held(&family_lock);
    lochi_pool *full = NULL;
    for (lochi_pool *at = pool->is_related ? pool : NULL; at && (!full || is_topmost); at = family_counter(at)) {
        const size_t held = at->family.sums[POOL_HELD];
        if (family_limit(at) < held || family_left(at) < needed) full = at;
        const size_t spare = family_spare(at);
        needed = needed > spare ? needed - spare : 0;
    }
    return full;
}

lochi_pool *lochi_family_find_full(lochi_pool *pool, size_t bytes)
{
    const size_t needed = bytes ? lochi_pool_round(pool, bytes) + pool->cell_bytes
                                : 0; /* whole cells, and the bytes that alignment costs */
    lochi_lock_take(&family_lock);
    lochi_pool *full = family_find_full(pool, needed, true);
    lochi_lock_drop(&family_lock);
    return full;
}

size_t lochi_family_count_lack(const lochi_pool *pool, const lochi_pool *above, size_t bytes)
{
    size_t needed = (bytes + pool->step_bytes - 1) / pool->step_bytes * pool->step_bytes;
    lochi_lock_take(&family_lock);
    for (; pool && pool != above; pool = family_counter(pool)) {
        const size_t spare = family_spare(pool);
        needed = needed > spare ? needed - spare : 0;
    }
    const size_t limit = family_limit(above), held = above->family.sums[POOL_HELD];
    lochi_lock_drop(&family_lock);
    if (!needed) return 0; /* promised: it counts in `above` already */
    if (limit >= held) return needed > limit - held ? needed - (limit - held) : 0;
    return needed + (held - limit);
}

const lochi_pool *lochi_family_find_limit(lochi_pool *pool, size_t bytes, size_t *limit, size_t *held)
{
    lochi_lock_assert_held(&pool->lock);
    *limit = pool->limit;
    *held = pool->reserved;
    if (!pool->is_related) return pool;
    const size_t needed = lochi_pool_round(pool, bytes);
    lochi_lock_take(&family_lock);
    const lochi_pool *full = family_find_full(pool, needed, false);
    if (!full) full = family_find_full(pool, needed + pool->cell_bytes, false); /* the bytes that alignment costs */
    if (!full) full = pool;
    const bool is_device = !full->family.limit && !full->family.sums[POOL_PROMISED];
    *limit = is_device ? SIZE_MAX : family_limit(full);
    *held = full->family.sums[POOL_HELD];
    lochi_lock_drop(&family_lock);
    return full;
}

const lochi_pool *lochi_family_find_ceiling(const lochi_pool *pool, size_t bytes, size_t *ceiling)
{
    const lochi_pool *found = NULL;
    lochi_lock_take(&family_lock);
    for (; pool && !found; pool = family_counter(pool)) {
        if (!pool->family.ceiling || bytes <= pool->family.ceiling) continue;
        *ceiling = pool->family.ceiling;
        found = pool;
    }
    lochi_lock_drop(&family_lock);
    return found;
}

lochi_pool *lochi_pool_get_parent(const lochi_pool *pool)
{
    return family_counter(pool);
}

bool lochi_pool_is_short_of(lochi_pool *pool, const lochi_pool *parent, size_t bytes)
{
    const lochi_pool *full = lochi_family_find_full(pool, bytes);
    return full && lochi_family_is_below(parent, full);
}

bool lochi_family_is_below(const lochi_pool *pool, const lochi_pool *above)
{
    while (pool && pool != above)
        pool = family_counter(pool);
    return pool != NULL;
}

size_t lochi_family_get_gain(const lochi_pool *pool)
{
    lochi_lock_take(&family_lock);
    const size_t held = pool->family.sums[POOL_HELD], minimum = pool->family.minimum;
    lochi_lock_drop(&family_lock);
    return held > minimum ? held - minimum : 0;
}

size_t lochi_family_get_keep(const lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    const size_t gain = lochi_family_get_gain(pool);
    const size_t free = pool->reserved > pool->used ? pool->reserved - pool->used : 0;
    return free > gain ? free - gain : 0;
}

size_t lochi_family_count(const lochi_pool *pool, size_t *bytes)
{
    size_t count = 0;
    *bytes = 0;
    lochi_lock_take(&family_lock);
    for (const lochi_pool *child = family_next(pool, 0); child; child = family_next(pool, child->family.node.key)) {
        count++;
        if (child->family.is_counted) *bytes += family_share(child, POOL_HELD);
    }
    lochi_lock_drop(&family_lock);
    return count;
}

bool lochi_family_check(const lochi_pool *pool)
{
    size_t held = pool->reserved, promised = 0;
    lochi_lock_take(&family_lock);
    for (const lochi_pool *child = family_next(pool, 0); child; child = family_next(pool, child->family.node.key)) {
        if (!child->family.is_counted) continue;
        held += family_share(child, POOL_HELD);
        promised += family_share(child, POOL_PROMISED);
    }
    const bool is_right = held == pool->family.sums[POOL_HELD] && promised == pool->family.sums[POOL_PROMISED];
    lochi_lock_drop(&family_lock);
    return is_right;
}

/* --- children --- */

bool lochi_family_promise(lochi_pool *parent, size_t minimum)
{
    lochi_pool_assert_both(parent); /* otherwise memory that is being created would be counted in one way only */
    lochi_lock_take(&family_lock);
    if (!parent->is_related) {
        parent->is_related = parent->cap.is_obedient = true;
        parent->family.sums[POOL_HELD] = parent->reserved;
    }
    const bool fits = minimum <= family_room(parent);
    if (fits) {
        family_raise(parent, POOL_HELD, minimum);
        family_raise(parent, POOL_PROMISED, minimum);
    }
    lochi_lock_drop(&family_lock);
    return fits;
}

void lochi_family_link(lochi_pool *pool)
{
    lochi_lock_take(&family_lock);
    pool->family.node.key = ++family_number;
    lochi_tree_insert(&pool->family.parent->family.children, &pool->family.node);
    pool->family.is_linked = true;
    lochi_lock_drop(&family_lock);
}

void lochi_family_unlink(lochi_pool *pool)
{
    lochi_pool *parent = pool->family.parent;
    lochi_lock_take(&family_lock);
    if (pool->family.is_linked) lochi_tree_remove(&parent->family.children, &pool->family.node);
    if (pool->family.is_counted) {
        family_lower(parent, POOL_HELD, family_share(pool, POOL_HELD));
        family_lower(parent, POOL_PROMISED, family_share(pool, POOL_PROMISED));
    }
    lochi_lock_drop(&family_lock);
}

/* Takes a reference unless the last one has been released. */
static bool family_try_retain(loch_allocator *allocator)
{
    size_t seen = atomic_load_explicit(&allocator->references, memory_order_relaxed);
    while (seen && !atomic_compare_exchange_weak_explicit(&allocator->references, &seen, seen + 1, memory_order_relaxed,
                                                          memory_order_relaxed)) {}
    return seen != 0;
}

loch_allocator *lochi_family_next_child(const lochi_pool *pool, uint64_t *number)
{
    loch_allocator *found = NULL;
    lochi_lock_take(&family_lock);
    for (const lochi_pool *child; !found && (child = family_next(pool, (uintptr_t)*number));) {
        *number = child->family.node.key;
        if (family_try_retain(child->allocator)) found = child->allocator;
    }
    lochi_lock_drop(&family_lock);
    return found;
}
