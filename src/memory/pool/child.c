/* SPDX-License-Identifier: MIT */
/* Pools inside pools.
 *
 * A range is a block of the parent like any other, and the only raw segment of the child: nothing else can lie in it, and it
 * goes back like any block, behind the streams that used it.
 *
 * A quota is a pool of its own whose memory counts further up. Each related pool has a sum: what it holds itself, and for
 * each child the child's sum or its minimum, whichever is more. Memory is counted in all the way up before it is taken from
 * the device, under one lock, so that no sum exceeds its pool's limit and a minimum is there before its child asks for it:
 *
 *   sum(pool) = reserved(pool) + sum over children of max(sum(child), minimum(child)) <= limit(pool)
 *
 * A child keeps its parent's allocator, so whoever is above a pool is there as long as the pool. */
#include "base/cancel.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/logging.h"
#include "base/sized.h"
#include "memory/pool/handle.h"
#include "memory/session/session.h"

#define CHILD_RANGE_MIN ((size_t)16 << 10) /* two pages: a range is a large block of its parent, and holds small ones */

/* Sums, limits and lists of children of all pools: held for a few additions. */
static lochi_lock child_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_FAMILY);
static uint64_t child_number; /* made so far */

/* --- sums: under the family lock --- */

/* Who counts what a pool holds; NULL for none. */
static lochi_pool *child_counter(const lochi_pool *pool)
{
    return pool->family.is_counted ? pool->family.parent : NULL;
}

/* What a pool counts for further up. */
static size_t child_share(const lochi_pool *pool, int sum)
{
    const size_t bytes = pool->family.sums[sum];
    return bytes > pool->family.minimum ? bytes : pool->family.minimum;
}

static void child_raise(lochi_pool *pool, int sum, size_t bytes)
{
    for (; pool && bytes; pool = child_counter(pool)) {
        const size_t before = child_share(pool, sum);
        pool->family.sums[sum] += bytes;
        bytes = child_share(pool, sum) - before;
    }
}

static void child_lower(lochi_pool *pool, int sum, size_t bytes)
{
    for (; pool && bytes; pool = child_counter(pool)) {
        const size_t before = child_share(pool, sum);
        pool->family.sums[sum] -= bytes;
        bytes = before - child_share(pool, sum);
    }
}

/* The part of the minimum that is not held: bytes that a claim does not need from further up. */
static size_t child_spare(const lochi_pool *pool)
{
    return child_share(pool, POOL_HELD) - pool->family.sums[POOL_HELD];
}

/* A family without a limit has that of the device, so that minima mean something. SIZE_MAX: none. */
static size_t child_limit(const lochi_pool *pool)
{
    if (pool->family.limit) return pool->family.limit;
    const bool is_device = !child_counter(pool) && pool->kind == LOCH_MEMORY_DEVICE;
    return is_device && pool->device->properties.total_bytes ? pool->device->properties.total_bytes : SIZE_MAX;
}

/* What the pool's own limit leaves. */
static size_t child_left(const lochi_pool *pool)
{
    const size_t limit = child_limit(pool), held = pool->family.sums[POOL_HELD];
    return limit == SIZE_MAX ? SIZE_MAX : limit > held ? limit - held : 0;
}

static size_t child_room(const lochi_pool *pool)
{
    size_t room = SIZE_MAX, spare = 0;
    for (; pool; pool = child_counter(pool)) {
        const size_t left = child_left(pool);
        if (left < SIZE_MAX - spare && left + spare < room) room = left + spare;
        spare += child_spare(pool);
    }
    return room;
}

/* --- for the pool's other files --- */

size_t lochi_family_room(const lochi_pool *pool)
{
    lochi_lock_take(&child_lock);
    const size_t room = child_room(pool);
    lochi_lock_drop(&child_lock);
    return room;
}

bool lochi_family_claim(lochi_pool *pool, size_t bytes)
{
    lochi_lock_take(&child_lock);
    const bool fits = bytes <= child_room(pool);
    if (fits) child_raise(pool, POOL_HELD, bytes);
    lochi_lock_drop(&child_lock);
    return fits;
}

void lochi_family_unclaim(lochi_pool *pool, size_t bytes)
{
    lochi_lock_take(&child_lock);
    child_lower(pool, POOL_HELD, bytes);
    lochi_lock_drop(&child_lock);
}

size_t lochi_family_excess(const lochi_pool *pool)
{
    size_t excess = 0;
    lochi_lock_take(&child_lock);
    for (; pool; pool = child_counter(pool)) {
        const size_t limit = pool->family.limit, held = pool->family.sums[POOL_HELD];
        if (limit && held > limit && held - limit > excess) excess = held - limit;
    }
    lochi_lock_drop(&child_lock);
    return excess;
}

loch_status lochi_family_set_limit(lochi_pool *pool, size_t limit_bytes)
{
    lochi_lock_take(&child_lock);
    const size_t promised = child_share(pool, POOL_PROMISED);
    const bool fits = !limit_bytes || limit_bytes >= promised;
    if (fits) pool->family.limit = limit_bytes;
    lochi_lock_drop(&child_lock);
    if (fits) return LOCH_OK;
    return LOCH_FAIL(LIMIT, "a limit of %zu bytes is less than the %zu that are promised as minima", limit_bytes,
                     promised);
}

lochi_pool *lochi_family_find_full(lochi_pool *pool, size_t bytes)
{
    lochi_pool *full = NULL;
    size_t needed =
        bytes ? lochi_pool_round(pool, bytes) + pool->cell_bytes : 0; /* whole cells, and what aligning takes */
    lochi_lock_take(&child_lock);
    for (lochi_pool *at = pool->is_related ? pool : NULL; at; at = child_counter(at)) {
        const size_t held = at->family.sums[POOL_HELD];
        if (child_limit(at) < held || child_left(at) < needed) full = at;
        const size_t spare = child_spare(at);
        needed = needed > spare ? needed - spare : 0;
    }
    lochi_lock_drop(&child_lock);
    return full;
}

const lochi_pool *lochi_family_find_limit(lochi_pool *pool, size_t bytes, size_t *limit, size_t *held)
{
    *limit = pool->limit;
    *held = pool->reserved;
    if (!pool->is_related) return pool;
    const lochi_pool *full = lochi_family_find_full(pool, bytes);
    if (!full) full = pool;
    lochi_lock_take(&child_lock);
    *limit = child_limit(full);
    *held = full->family.sums[POOL_HELD];
    lochi_lock_drop(&child_lock);
    return full;
}

bool lochi_family_is_below(const lochi_pool *pool, const lochi_pool *above)
{
    while (pool && pool != above)
        pool = child_counter(pool);
    return pool != NULL;
}

size_t lochi_family_get_keep(const lochi_pool *pool)
{
    lochi_lock_take(&child_lock);
    const size_t held = pool->family.sums[POOL_HELD], minimum = pool->family.minimum;
    lochi_lock_drop(&child_lock);
    const size_t gain = held > minimum ? held - minimum : 0;
    const size_t free = pool->reserved > pool->used ? pool->reserved - pool->used : 0;
    return free > gain ? free - gain : 0;
}

size_t lochi_family_count(const lochi_pool *pool, size_t *bytes)
{
    size_t count = 0;
    *bytes = 0;
    lochi_lock_take(&child_lock);
    for (const lochi_pool *child = pool->family.children; child; child = child->family.next_child) {
        count++;
        if (child->family.is_counted) *bytes += child_share(child, POOL_HELD);
    }
    lochi_lock_drop(&child_lock);
    return count;
}

bool lochi_family_check(const lochi_pool *pool)
{
    size_t held = pool->reserved, promised = 0;
    lochi_lock_take(&child_lock);
    for (const lochi_pool *child = pool->family.children; child; child = child->family.next_child) {
        if (!child->family.is_counted) continue;
        held += child_share(child, POOL_HELD);
        promised += child_share(child, POOL_PROMISED);
    }
    const bool is_right = held == pool->family.sums[POOL_HELD] && promised == pool->family.sums[POOL_PROMISED];
    lochi_lock_drop(&child_lock);
    return is_right;
}

/* --- quotas --- */

/* Counts the minimum in for the parents if it fits. From then on they count together. */
static bool child_try_promise(lochi_pool *parent, size_t minimum)
{
    lochi_lock_take(&parent->lock);
    lochi_lock_take(&child_lock);
    if (!parent->is_related) {
        parent->is_related = parent->is_obedient = true;
        parent->family.sums[POOL_HELD] = parent->reserved;
    }
    const bool fits = minimum <= child_room(parent);
    if (fits) {
        child_raise(parent, POOL_HELD, minimum);
        child_raise(parent, POOL_PROMISED, minimum);
    }
    lochi_lock_drop(&child_lock);
    lochi_lock_drop(&parent->lock);
    return fits;
}

static loch_status child_open_quota(lochi_pool *pool, const loch_child_options *options)
{
    lochi_pool *parent = pool->family.parent;
    size_t minimum;
    if (parent->range) return LOCH_FAIL(UNSUPPORTED, "the parent is a range: its children are ranges, too");
    if (options->limit_bytes && options->minimum_bytes > options->limit_bytes)
        return LOCH_FAIL(INVALID, "a minimum of %zu bytes is more than the limit of %zu", options->minimum_bytes,
                         options->limit_bytes);
    if (!lochi_round_up(options->minimum_bytes, pool->cell_bytes, &minimum)) /* memory comes in whole cells */
        return LOCH_FAIL(OVERFLOW, "a minimum of %zu bytes does not fit the address space", options->minimum_bytes);
    if (options->limit_bytes && minimum > options->limit_bytes) minimum = options->limit_bytes;
    bool fits = child_try_promise(parent, minimum);
    if (!fits && lochi_pool_ask_family(parent, minimum, true)) fits = child_try_promise(parent, minimum);
    if (!fits)
        return LOCH_FAIL(LIMIT, "a minimum of %zu bytes is more than the limits of \"%s\" and its parents leave",
                         minimum, loch_allocator_get_name(parent->allocator));
    pool->family.minimum = minimum;
    pool->family.is_counted = true;
    pool->is_related = pool->is_obedient = true;
    pool->limit = options->limit_bytes;
    return LOCH_OK;
}

/* --- ranges --- */

static loch_status child_open_range(lochi_pool *pool, const loch_child_options *options)
{
    lochi_pool *parent = pool->family.parent;
    loch_stream *stream = options->stream ? options->stream : pool->default_stream;
    const loch_request request = {.size = sizeof request,
                                  .bytes = options->limit_bytes,
                                  .alignment = POOL_PAGE,
                                  .stream = stream,
                                  .tag = options->tag};
    loch_status status;
    void *range;
    if (options->minimum_bytes) return LOCH_FAIL(INVALID, "a range has no minimum: it is there as a whole");
    if (options->limit_bytes < CHILD_RANGE_MIN)
        return LOCH_FAIL(INVALID, "a range has %zu bytes at least, not %zu", CHILD_RANGE_MIN, options->limit_bytes);
    LOCH_TRY_RETURN(lochi_stream_check(stream, pool->device));
    pool_lane *lane = lochi_pool_lane(pool, stream, &status);
    if (!lane) return status;
    if (lane->capture) return LOCH_FAIL(BUSY, "a child cannot be made in a capture");
    lochi_session_frame frame;
    lochi_session_hush(&frame); /* it lives as long as the child, whatever the thread is in */
    status = loch_allocator_alloc(parent->allocator, &request, &range);
    lochi_session_unhush(&frame);
    if (status != LOCH_OK) return status;
    lochi_pool_keep_range(parent, range, pool);
    pool->range = range;
    pool->limit = options->limit_bytes & ~(POOL_UNIT - 1);
    pool->idle = 0;
    pool->is_capped = pool->is_obedient = false; /* it keeps what it has */
    return lochi_pool_adopt_range(pool, pool->limit, lane);
}

void lochi_child_note_uses(lochi_pool *pool)
{
    const loch_error saved = lochi_error_save();
    loch_allocator *parent = pool->family.parent->allocator;
    bool is_noted = true;
    for (pool_lane *lane = pool->lanes; lane && is_noted; lane = lane->next) {
        if (lane->done == UINT64_MAX || lane->capture) continue; /* captures are waited for by themselves */
        if (lane->is_closed) {
            lochi_pool_poll(pool, lane);
            is_noted = lochi_pool_has_passed(lane, lane->epoch);
        } else {
            is_noted = !lochi_pool_is_under_capture(pool, lane) &&
                       loch_allocator_record_use(parent, pool->range, lane->stream) == LOCH_OK;
        }
    }
    if (!is_noted) lochi_pool_wait_for_all(pool);
    lochi_error_restore(&saved);
}

/* --- the beginning and the end --- */

loch_status lochi_child_open(lochi_pool *pool, const pool_descent *descent)
{
    pool->family.parent = descent->parent;
    pool->peers = descent->parent->peers;
    pool->peers_count = descent->parent->peers_count;
    loch_allocator_retain(descent->parent->allocator);
    return descent->options.kind == LOCH_CHILD_RANGE ? child_open_range(pool, &descent->options)
                                                     : child_open_quota(pool, &descent->options);
}

void lochi_child_link(lochi_pool *pool)
{
    lochi_lock_take(&child_lock);
    lochi_pool **end = &pool->family.parent->family.children;
    while (*end)
        end = &(*end)->family.next_child;
    *end = pool;
    pool->family.number = ++child_number;
    pool->family.is_linked = true;
    lochi_lock_drop(&child_lock);
}

/* The memory has gone to the device; what was promised goes with the child. */
static void child_unlink(lochi_pool *pool)
{
    lochi_pool *parent = pool->family.parent;
    lochi_lock_take(&child_lock);
    if (pool->family.is_linked) {
        lochi_pool **link = &parent->family.children;
        while (*link != pool)
            link = &(*link)->family.next_child;
        *link = pool->family.next_child;
    }
    if (pool->family.is_counted) {
        child_lower(parent, POOL_HELD, child_share(pool, POOL_HELD));
        child_lower(parent, POOL_PROMISED, child_share(pool, POOL_PROMISED));
    }
    lochi_lock_drop(&child_lock);
}

void lochi_child_close(lochi_pool *pool)
{
    lochi_pool *parent = pool->family.parent;
    if (!parent) return;
    const loch_error saved = lochi_error_save();
    child_unlink(pool);
    if (pool->range) {
        lochi_pool_keep_range(parent, pool->range, NULL);
        if (pool->dirty || pool->dirty_words) /* nobody is to read it: it stays out for good */
            LOCHI_LOG(ERROR, "a child's range of %zu bytes could not be wiped, and is lost", pool->limit);
        else if (loch_allocator_free(parent->allocator, pool->range) != LOCH_OK)
            LOCHI_LOG(ERROR, "a child's range is lost: %s", loch_error_get()->sentence);
    }
    loch_allocator_release(parent->allocator);
    lochi_error_restore(&saved);
}

/* --- for users --- */

loch_status loch_pool_create_child(loch_allocator *parent, const char *name, const loch_child_options *options,
                                   loch_allocator **out)
{
    if (out) *out = NULL;
    pool_descent descent = {.parent = lochi_pool_of(parent), .options = {.size = sizeof descent.options}};
    if (!descent.parent || !out) return LOCH_FAIL(INVALID, "a child needs a pool as its parent, and a place");
    LOCH_TRY_RETURN(lochi_sized_read("a struct of child options", options, &descent.options, sizeof descent.options));
    if ((unsigned)descent.options.kind > LOCH_CHILD_RANGE)
        return LOCH_FAIL(INVALID, "kind %d of a child is not known", (int)descent.options.kind);
    loch_pool_options pool = {.size = sizeof pool};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of pool options", descent.options.pool, &pool, sizeof pool));
    if (pool.kind != LOCH_MEMORY_DEVICE && pool.kind != descent.parent->kind)
        return LOCH_FAIL(INVALID, "the parent has %s memory, not %s", loch_memory_kind_name(descent.parent->kind),
                         loch_memory_kind_name(pool.kind));
    pool.kind = descent.parent->kind;
    pool.limit_bytes = 0;
    if (pool.wipe < descent.parent->options.wipe) pool.wipe = descent.parent->options.wipe;
    return lochi_pool_make(descent.parent->device, name ? name : "child", &pool, &descent, out);
}

loch_allocator *loch_pool_get_parent(const loch_allocator *allocator)
{
    while (allocator && allocator->wrapped)
        allocator = allocator->wrapped;
    const lochi_pool *pool = allocator ? allocator->pool : NULL;
    return pool && pool->family.parent ? pool->family.parent->allocator : NULL;
}

/* A reference, unless the last has gone. */
static bool child_try_retain(loch_allocator *allocator)
{
    size_t seen = atomic_load_explicit(&allocator->references, memory_order_relaxed);
    while (seen && !atomic_compare_exchange_weak_explicit(&allocator->references, &seen, seen + 1, memory_order_relaxed,
                                                          memory_order_relaxed)) {}
    return seen != 0;
}

/* The first child that was made after the one with a number, retained; NULL for none. */
static loch_allocator *child_next(const lochi_pool *pool, uint64_t *number)
{
    loch_allocator *found = NULL;
    lochi_lock_take(&child_lock);
    for (lochi_pool *child = pool->family.children; child && !found; child = child->family.next_child) {
        if (child->family.number <= *number || !child_try_retain(child->allocator)) continue;
        *number = child->family.number;
        found = child->allocator;
    }
    lochi_lock_drop(&child_lock);
    return found;
}

loch_status loch_pool_walk_children(loch_allocator *allocator, loch_child_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    const lochi_pool *pool = lochi_pool_of(allocator);
    if (!pool || !visitor) return LOCH_FAIL(INVALID, "walking the children needs a pool and a visitor");
    loch_status status = LOCH_OK;
    uint64_t number = 0;
    for (loch_allocator *child; status == LOCH_OK && (child = child_next(pool, &number));) {
        status = visitor(child, user);
        loch_allocator_release(child);
    }
    return status;
}

loch_allocator *lochi_pool_get_range_owner(const lochi_pool *pool)
{
    return pool->range ? pool->family.parent->allocator : NULL;
}
