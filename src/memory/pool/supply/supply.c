/* SPDX-License-Identifier: MIT */
/* Carries out plans: remaps idle handles, creates new ones, takes raw segments. A plan is made with both locks held.
 * Everything that it is about is taken out of the lists before the first driver call, so that other threads allocate
 * and free meanwhile; the new memory becomes free when all calls are done. */
#include "memory/pool/supply/supply.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/text.h"
#include "device/driver.h"
#include "memory/pool/supply/handle.h"
#include "memory/pool/limits/limits.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"
#include "memory/pool/supply/place.h"
#include "memory/pool/supply/price.h"
#include "memory/pool/supply/release.h"
#include "memory/pool/supply/reserve.h"
#include "memory/pool/supply/segment.h"

#define SUPPLY_SOURCE_MIN ((size_t)2 << 20)   /* bytes of segments of a source, unless the source has less: */
#define SUPPLY_SOURCE_MAX ((size_t)128 << 20) /* between these two, the following part of what the pool holds */
#define SUPPLY_SOURCE_PART 256
#define SUPPLY_TRIES 3                       /* plans that may remove old mappings */
#define SUPPLY_SHARED_MIN ((size_t)1 << 20)  /* bytes of segments of pinned memory that several blocks share: */
#define SUPPLY_SHARED_MAX ((size_t)16 << 20) /* between these two, the following part of what the pool holds */
#define SUPPLY_SHARED_PART 256
#define SUPPLY_UNALIGNED_MIN ((size_t)16 << 20)
#define SUPPLY_UNALIGNED_MAX ((size_t)256 << 20)
#define SUPPLY_UNALIGNED_PART 8

/* Fills held addresses with new handles, which are counted in `*made`. */
static loch_status supply_fill_gap(lochi_pool *pool, const pool_want *want, pool_block *gap, size_t *made)
{
    while (gap) {
        size_t bytes = lochi_pool_choose_handle(pool, gap->bytes);
        if (bytes > gap->bytes) bytes = gap->bytes;
        pool_handle *handle;
        pool_block *rest;
        LOCH_TRY_RETURN(lochi_pool_create_some(pool, bytes, &handle));
        loch_status status = lochi_pool_cut_held(pool, gap, handle->bytes, &rest);
        if (status == LOCH_OK) status = lochi_pool_map_handle(pool, handle, gap->start);
        if (status != LOCH_OK) {
            lochi_pool_destroy_handle(pool, handle);
            return status;
        }
        lochi_pool_fill(pool, handle, gap, want->lane);
        ++*made;
        gap = rest;
    }
    return LOCH_OK;
}

/* Carries out the planned remaps. */
static loch_status supply_move(lochi_pool *pool, const pool_want *want, const pool_place *plan)
{
    for (size_t i = 0; i < plan->sources_count; i++) {
        const pool_origin *source = &plan->sources[i];
        if (!source->to) continue;
        pool_handle *handle = source->handle;
        if (source->block) {
            LOCH_TRY_RETURN(lochi_pool_move_free(pool, handle, source->block, handle->home, want->lane));
        } else {
            LOCH_TRY_RETURN(lochi_pool_map_handle(pool, handle, handle->home->start));
            lochi_pool_fill(pool, handle, handle->home, want->lane);
        }
    }
    return LOCH_OK;
}

/* Lets handles return to old addresses. */
static loch_status supply_revive(lochi_pool *pool, const pool_want *want, const pool_place *plan)
{
    for (size_t i = 0; i < plan->revived_count; i++) {
        const pool_handle *handle = plan->revived[i]->handle;
        pool_block *home = lochi_pool_find_near(handle->home, handle->at);
        LOCH_TRY_RETURN(lochi_pool_revive(pool, plan->revived[i], home, want->lane));
    }
    return LOCH_OK;
}

/* --- holding what a plan is about --- */

/* Holds the idle handles of a plan and the addresses that they go to. A source's block is the held one from now on, and
 * the handle's home are the addresses that it goes to. */
static loch_status supply_hold_sources(lochi_pool *pool, pool_place *plan)
{
    for (size_t i = 0; i < plan->sources_count; i++) {
        pool_origin *source = &plan->sources[i];
        if (!source->to) continue;
        pool_handle *handle = source->handle;
        if (source->block) { /* the block may have been cut meanwhile */
            pool_block *block = lochi_pool_find_near(source->block, handle->at);
            LOCH_TRY_RETURN(lochi_pool_hold_handle(pool, handle, block, &source->block));
        }
        pool_block *unmapped = lochi_pool_find_near(plan->spot.hint, source->to);
        LOCH_TRY_RETURN(lochi_pool_hold_unmapped(pool, unmapped, source->to, handle->bytes, &handle->home));
    }
    return LOCH_OK;
}

/* Holds the free memory of the spot, which the request needs too. */
static void supply_hold_spot(lochi_pool *pool, const pool_want *want, const pool_place *plan)
{
    const uintptr_t end = plan->spot.start + want->bytes;
    pool_block *block = lochi_pool_find_near(plan->spot.hint, plan->spot.start);
    for (; block && block->start < end; block = block->behind)
        if (lochi_pool_state(block) == POOL_FREE) lochi_pool_hold(pool, block, &pool->detached.held);
}

/* Holds everything that a plan is about, so that no other thread takes a part of it during the driver calls. Sets the
 * addresses that new handles are for; NULL for none. */
static loch_status supply_hold(lochi_pool *pool, const pool_want *want, pool_place *plan,
                               pool_block *gaps[POOL_PLACE_GAPS])
{
    LOCH_TRY_RETURN(supply_hold_sources(pool, plan));
    for (size_t g = 0; g < plan->gaps_count; g++) {
        const pool_gap *gap = &plan->gaps[g];
        gaps[g] = NULL;
        if (gap->start == gap->end) continue;
        pool_block *unmapped = lochi_pool_find_near(plan->spot.hint, gap->start);
        LOCH_TRY_RETURN(lochi_pool_hold_unmapped(pool, unmapped, gap->start, gap->end - gap->start, &gaps[g]));
    }
    if (plan->missing) supply_hold_spot(pool, want, plan);
    return LOCH_OK;
}

/* Plans, and removes the old mappings that are in the way. The pool's lock is dropped for that, so the plan is made
 * again afterwards. Returns false if there is no place. */
static bool supply_plan(lochi_pool *pool, const pool_want *want, pool_place *plan)
{
    for (unsigned tries = 0; lochi_pool_plan_place(pool, want, tries < SUPPLY_TRIES, plan); tries++) {
        if (!plan->stale_count) return true;
        for (size_t i = 0; i < plan->stale_count; i++)
            (void)lochi_pool_unmap_stale(pool, plan->stale[i]);
        lochi_free(plan->sources);
    }
    return false;
}

/* Makes a plan, and holds everything that it is about. The caller frees its sources in any case. */
static loch_status supply_prepare(lochi_pool *pool, const pool_want *want, pool_source source, pool_place *plan,
                                  pool_block *gaps[POOL_PLACE_GAPS])
{
    if (!supply_plan(pool, want, plan)) return LOCH_FAIL(FRAGMENTED, "the pool has no free addresses left");
    const size_t left = lochi_pool_assign(pool, want, plan);
    if (left && source == POOL_MOVED && !plan->is_created)
        return LOCH_FAIL(FRAGMENTED, "no idle memory can be mapped where it is needed");
    if (left) LOCH_TRY_RETURN(lochi_pool_check_limit(pool, left));
    if (left) LOCH_TRY_RETURN(lochi_pool_check_room(pool, left));
    LOCH_TRY_RETURN(supply_revive(pool, want, plan));
    return supply_hold(pool, want, plan, gaps);
}

/* --- raw segments --- */

/* Returns a part of what the pool holds, between two bounds, or the size of handles that the options say. */
static size_t supply_choose_part(const lochi_pool *pool, size_t divisor, size_t least, size_t most)
{
    const size_t part = pool->reserved / divisor;
    if (pool->options.handle_bytes) return pool->options.handle_bytes;
    return part < least ? least : part > most ? most : part / pool->step_bytes * pool->step_bytes;
}

/* Chooses the size of a segment of pinned memory.
 *
 * Pinning takes time by the byte (about 0.3 ms for each MiB) and hardly any by the call, and nothing of a segment can
 * be given back before all of it is free. So a segment has the size of its request, to a page: larger ones save no time
 * and hold memory that may never be used. Small requests share a segment, because a process has a limited number of
 * mappings. Such a segment holds a whole number of them, and is at most 1/256 of what the pool holds, or 1 MiB. */
static size_t supply_choose_exact(const lochi_pool *pool, size_t bytes, size_t needed)
{
    if (pool->options.handle_bytes) return pool->options.handle_bytes;
    size_t shared = pool->reserved / SUPPLY_SHARED_PART;
    if (shared < SUPPLY_SHARED_MIN) shared = SUPPLY_SHARED_MIN;
    if (shared > SUPPLY_SHARED_MAX) shared = SUPPLY_SHARED_MAX;
    const size_t step = pool->step_bytes;
    size_t count = shared / bytes;
    if (needed < SUPPLY_SHARED_MIN && count * bytes < SUPPLY_SHARED_MIN) count++;
    return count > 1 ? (count * bytes + step - 1) / step * step : needed;
}

/* Chooses the size of a segment of pinned memory from a driver that does not align it, so that each one costs a cell
 * more: an eighth of what the pool holds, between 16 and 256 MiB. */
static size_t supply_choose_unaligned(const lochi_pool *pool)
{
    return supply_choose_part(pool, SUPPLY_UNALIGNED_PART, SUPPLY_UNALIGNED_MIN, SUPPLY_UNALIGNED_MAX);
}

/* Gives free segments back before the pool takes more than it may keep, and adds them to `given`. None of them fits the
 * request. So each byte that goes is paid for by a byte that has to be pinned anyway: giving back takes a third of the
 * time of pinning, and never more than twice the bytes go. A later request that would have fitted finds the new
 * segment, which is larger, so that sizes which alternate pin once. Nothing is given back during a capture, and nothing
 * if the limit leaves no room for the new segment even so. */
static void supply_make_way(lochi_pool *pool, const pool_want *want, const pool_segment_size *size, pool_given *given)
{
    const size_t most = lochi_pool_may_hold(pool, want->bytes), all = pool->reserved + size->wished;
    if (want->lane->capture || all <= most) return;
    const loch_error saved = lochi_error_save();
    lochi_pool_mark_freed(pool);
    const size_t room = lochi_pool_find_limit_room(pool), lack = size->needed > room ? size->needed - room : 0;
    if (!lack || (lack <= all - most && lack <= lochi_pool_count_idle(pool, true)))
        lochi_pool_make_way(pool, all - most, given);
    lochi_error_restore(&saved);
}

/* Chooses the size of a segment from a source. It follows from the requests alone, never from the time that calls take:
 * processes that make equal requests have to get equal segments. */
static size_t supply_choose_for_source(const lochi_pool *pool)
{
    return supply_choose_part(pool, SUPPLY_SOURCE_PART, SUPPLY_SOURCE_MIN, SUPPLY_SOURCE_MAX);
}

pool_segment_size lochi_pool_size_segment(lochi_pool *pool, size_t bytes, size_t alignment)
{
    lochi_lock_assert_held(&pool->lock);
    pool_segment_size size = {.alignment = pool->cell_bytes};
    if (pool->policy.is_unsplit && alignment > size.alignment)
        size.alignment = alignment; /* the block starts with it */
    const size_t slack = alignment > size.alignment ? alignment : 0, step = pool->step_bytes;
    size.needed = (bytes + slack + step - 1) / step * step;
    if (pool->policy.is_unsplit)
        size.wished = size.needed;
    else if (pool->is_exact)
        size.wished = supply_choose_exact(pool, bytes + slack, size.needed);
    else if (pool->options.source)
        size.wished = supply_choose_for_source(pool);
    else if (pool->kind == LOCH_MEMORY_PINNED)
        size.wished = supply_choose_unaligned(pool);
    else
        size.wished = lochi_pool_choose_handle(pool, size.needed > pool->reserved ? size.needed : pool->reserved);
    if (size.wished < size.needed) size.wished = size.needed;
    return size;
}

/* Ends the attempt of a request that needs a segment of the pool's source. The caller gets the segment without locks,
 * and tries again. */
static loch_status supply_ask_source(lochi_pool *pool, const pool_segment_size *size)
{
    if (pool->source.dry != LOCH_OK)
        return loch_error_set(pool->source.dry, NULL, 0, "the source of pool \"%s\" has no segment of %s",
                              loch_allocator_get_name(pool->allocator), LOCHI_SIZE(size->needed));
    LOCH_TRY_RETURN(lochi_pool_check_limit(pool, size->needed));
    return POOL_NEEDS_SEGMENT;
}

/* Takes a raw segment of the wished size, or of the needed one if the device has no larger one. */
static loch_status supply_take_sized(lochi_pool *pool, const pool_want *want, const pool_segment_size *size)
{
    const loch_error saved = lochi_error_save();
    if (size->wished > size->needed &&
        (!pool->policy.can_ask_room || pool->room.bytes >= size->wished + pool->room.headroom) &&
        lochi_pool_take_segment(pool, size->wished, size->alignment, want->lane) == LOCH_OK)
        return LOCH_OK;
    lochi_error_restore(&saved);
    return lochi_pool_take_segment(pool, size->needed, size->alignment, want->lane);
}

/* Takes a raw segment for the request. */
static loch_status supply_take_segment(lochi_pool *pool, const pool_want *want)
{
    const pool_segment_size size = lochi_pool_size_segment(pool, want->bytes, want->alignment);
    if (pool->options.source) return supply_ask_source(pool, &size);
    pool_given given = {NULL, 0, 0};
    if (pool->is_exact) supply_make_way(pool, want, &size, &given);
    const loch_status status = supply_take_sized(pool, want, &size);
    if (status != LOCH_OK) lochi_pool_take_back(pool, &given);
    lochi_pool_forget_given(&given);
    return status;
}

/* Tells whether a source can give memory at all, and prepares the pool for it. */
static loch_status supply_begin(lochi_pool *pool, const pool_want *want, pool_source source)
{
    if (pool->range && source != POOL_MOVED) return LOCH_FAIL(LIMIT, "a child has no memory beyond its range");
    if (source != POOL_MOVED || pool->policy.is_virtual) lochi_pool_look_at_room(pool, want->bytes);
    if (pool->policy.is_virtual) return lochi_pool_open_addresses(pool);
    return source != POOL_MOVED ? LOCH_OK : LOCH_FAIL(FRAGMENTED, "raw memory cannot be remapped");
}

loch_status lochi_pool_supply(lochi_pool *pool, const pool_want *want, pool_source source, pool_supplied *out)
{
    lochi_pool_assert_both(pool);
    LOCH_TRY_RETURN(supply_begin(pool, want, source));
    if (!pool->policy.is_virtual) return supply_take_segment(pool, want);
    const uint64_t remapped = pool->counts.handles_moved + pool->counts.handles_revived;
    const uint64_t start_ns = lochi_device_now_ns(pool->device);
    const uint64_t mapped = pool->counts.handles_moved + pool->counts.handles_created;
    pool_place plan;
    pool_block *gaps[POOL_PLACE_GAPS] = {NULL};
    size_t made = 0;
    loch_status status = supply_prepare(pool, want, source, &plan, gaps);
    if (status == LOCH_OK) status = supply_move(pool, want, &plan);
    for (size_t g = 0; status == LOCH_OK && g < plan.gaps_count; g++)
        status = supply_fill_gap(pool, want, gaps[g], &made);
    if (status != LOCH_OK) lochi_pool_destroy_filled(pool, made); /* a request that fails keeps nothing */
    const uintptr_t at = status == LOCH_OK ? plan.spot.start : 0;
    pool_block *block = lochi_pool_settle(pool, at);
    if (at && !block) block = lochi_pool_find_near(plan.spot.hint, at); /* nothing was taken out of the lists there */
    lochi_free(plan.sources);
    lochi_pool_note_time(pool, start_ns, pool->counts.handles_moved + pool->counts.handles_created - mapped);
    if (pool->counts.handles_moved + pool->counts.handles_revived != remapped)
        lochi_pool_mark(pool, want->lane); /* old addresses are unmapped after this event */
    *out = (pool_supplied){block, at};
    return status;
}
