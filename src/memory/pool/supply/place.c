/* SPDX-License-Identifier: MIT */
/* Chooses the addresses for a request: the spot that costs least, in free or unmapped addresses. The missing memory
 * comes from idle handles elsewhere, the largest that fit first, and from new handles. */
#include "memory/pool/supply/place.h"
#include "base/heap.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/supply/handle.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"
#include <stdlib.h>

#define PLACE_FITS 16        /* free blocks that fit */
#define PLACE_SPARED_PART 16 /* pinned memory: a request below this part of a free segment does not cut it */
#define PLACE_HOLES 512      /* holes that are compared */
#define PLACE_STEPS 512      /* blocks of one hole */
#define PLACE_STRETCHES 128  /* unmapped stretches of one hole */

/* --- choosing a place --- */

/* A hole: neighbours that are free in the lane of a request, or unmapped. */
typedef struct place_hole {
    uintptr_t start, end;
    pool_block *before; /* the block before the hole, or the first block of the pool */
    bool is_last;       /* the hole ends with the addresses of the pool */
    pool_gap unmapped[PLACE_STRETCHES];
    size_t unmapped_count;
} place_hole;

/* A search for a place. */
typedef struct place_search {
    const pool_want *want;
    bool may_drop; /* old mappings that can be removed now may be part of a hole */
    uint64_t plan; /* handles with this number are idle and may return to their old addresses; 0 if none may */
    double price;  /* of mapping one handle */
    size_t handle; /* size of a usual handle */
    pool_spot best;
} place_search;

/* Tells whether an old mapping can be removed. */
static bool place_has_passed(const pool_block *block)
{
    return block->handle && lochi_pool_has_passed(block->lane, lochi_pool_epoch(block));
}

/* Tells whether the handle of an old mapping is idle in a plan, so that it can return. */
static bool place_may_return(const pool_block *block, uint64_t plan)
{
    return block->handle && plan && block->handle->plan == plan;
}

/* Tells whether a block has no memory that the plan can use without a driver call. */
static bool place_is_unmapped(const pool_block *block, uint64_t plan)
{
    const pool_state state = lochi_pool_state(block);
    return state == POOL_UNMAPPED || (state == POOL_STALE && !place_may_return(block, plan));
}

/* Tells whether a block's addresses can be part of a hole. */
static bool place_is_open(const pool_block *block, const place_search *search)
{
    const pool_state state = lochi_pool_state(block);
    if (state == POOL_STALE)
        return (search->may_drop && place_has_passed(block)) || place_may_return(block, search->plan);
    return state == POOL_UNMAPPED ||
           (state == POOL_FREE && block->lane == search->want->lane && !block->is_arena && !block->is_piece);
}

/* Adds a stretch of addresses to an array, merged with the last one if they are adjacent. Returns false if there is no
 * room. */
static bool place_add_stretch(pool_gap *gaps, size_t *count, size_t capacity, uintptr_t start, uintptr_t end)
{
    if (*count && gaps[*count - 1].end == start) {
        gaps[*count - 1].end = end;
        return true;
    }
    if (*count == capacity) return false;
    gaps[(*count)++] = (pool_gap){start, end};
    return true;
}

/* Measures the hole around a block. Returns false if a block of the hole that is not free has a lower address: the hole
 * is found from there. */
static bool place_measure(const lochi_pool *pool, pool_block *block, const place_search *search, place_hole *hole)
{
    unsigned steps = 0;
    pool_block *first = block;
    for (; first->before && place_is_open(first->before, search) && steps < PLACE_STEPS; steps++) {
        first = first->before;
        if (lochi_pool_state(first) != POOL_FREE) return false;
    }
    hole->before = first->before ? first->before : pool->first;
    hole->start = hole->end = first->start;
    hole->unmapped_count = 0;
    const pool_block *last = first;
    for (; last && place_is_open(last, search) && steps < 2 * PLACE_STEPS; last = last->behind, steps++) {
        const uintptr_t end = last->start + last->bytes;
        if (place_is_unmapped(last, search->plan) &&
            !place_add_stretch(hole->unmapped, &hole->unmapped_count, PLACE_STRETCHES, last->start, end))
            break;
        hole->end = end;
    }
    hole->is_last = !last;
    return true;
}

/* Returns the bytes that stay free in the handle at `address`, which lies in a hole, when [start, end) is taken; less
 * what was wasted there before. Memory of a handle is wasted while it is free and the handle is not idle. */
static double place_edge(const lochi_pool *pool, const place_hole *hole, uintptr_t address, uintptr_t start,
                         uintptr_t end, uintptr_t *handle_end)
{
    const pool_cell *cell = lochi_pool_find_range_cell(pool, address);
    const pool_handle *handle = cell ? cell->handle : NULL;
    const uintptr_t from = handle ? handle->at : address & ~(uintptr_t)(pool->cell_bytes - 1);
    const uintptr_t to = handle ? handle->at + handle->bytes : from + pool->cell_bytes;
    const size_t taken = (to < end ? to : end) - (from > start ? from : start);
    *handle_end = to;
    return from >= hole->start && to <= hole->end ? (double)(to - from - taken) : -(double)taken;
}

/* Offers one spot of a hole. It costs what it wastes and the calls for the memory that it lacks. */
static void place_offer(lochi_pool *pool, const place_hole *hole, uintptr_t start, place_search *search)
{
    const size_t bytes = search->want->bytes, cell = pool->cell_bytes;
    const uintptr_t end = start + bytes;
    if (start < hole->start || end > hole->end) return;
    const uintptr_t first = start & ~(uintptr_t)(cell - 1), last = lochi_pool_round(pool, end);
    size_t missing = 0, gaps = 0;
    for (size_t i = 0; i < hole->unmapped_count; i++) {
        const pool_gap *unmapped = &hole->unmapped[i];
        if (unmapped->end <= first || unmapped->start >= last) continue;
        missing += (unmapped->end < last ? unmapped->end : last) - (unmapped->start > first ? unmapped->start : first);
        gaps++;
    }
    uintptr_t edge_end;
    double cost = place_edge(pool, hole, start, start, end, &edge_end);
    if (edge_end < end) cost += place_edge(pool, hole, end - 1, start, end, &edge_end);
    if (missing) {
        const size_t count = missing / search->handle + 1;
        cost += search->price * (double)(count > gaps ? count : gaps);
    }
    const pool_spot *best = &search->best;
    if (best->hint && (cost > best->cost || (cost == best->cost && start > best->start))) return;
    search->best = (pool_spot){start, missing, cost, hole->before};
}

/* Offers both ends of a hole, and its first whole cells. */
static void place_offer_hole(lochi_pool *pool, const place_hole *hole, place_search *search)
{
    const uintptr_t mask = search->want->alignment - 1;
    const uintptr_t low = (hole->start + mask) & ~mask, cells = (lochi_pool_round(pool, hole->start) + mask) & ~mask;
    if (hole->end - hole->start < search->want->bytes) return;
    place_offer(pool, hole, low, search);
    if (cells != low) place_offer(pool, hole, cells, search);
    const uintptr_t high = (hole->end - search->want->bytes) & ~mask;
    if (high != low && !hole->is_last) place_offer(pool, hole, high, search);
}

/* Makes a free block a hole. */
static void place_set_hole(const lochi_pool *pool, const pool_block *block, place_hole *hole)
{
    hole->start = block->start;
    hole->end = block->start + block->bytes;
    hole->before = block->before ? block->before : pool->first;
    hole->is_last = !block->behind;
    hole->unmapped_count = 0;
}

/* Finds the spot of a request for an address. Returns false if blocks that are not free or unmapped are in the way. */
static bool place_find_fixed(lochi_pool *pool, const place_search *search, pool_spot *best)
{
    const uintptr_t end = search->want->at + search->want->bytes;
    size_t missing = 0;
    const pool_block *block = lochi_pool_find_near(pool->first, search->want->at);
    for (; block && block->start < end; block = block->behind) {
        if (lochi_pool_state(block) != POOL_FREE && !place_is_open(block, search)) return false;
        if (place_is_unmapped(block, search->plan)) missing += block->bytes; /* at least: place_find_gaps counts it */
    }
    *best = (pool_spot){search->want->at, missing, 0, pool->first};
    return true;
}

/* Finds the spot that costs least: in the free block that fits best, and in all holes with unmapped addresses. */
static bool place_find(lochi_pool *pool, const pool_want *want, bool may_drop, uint64_t plan, pool_spot *best)
{
    place_search search = {want, may_drop, plan, lochi_pool_price(pool), lochi_pool_usual_handle(pool), {0}};
    if (want->at) return place_find_fixed(pool, &search, best);
    place_hole hole;
    unsigned above = 0, fits = 0;
    pool_block *fit = lochi_pool_bins_from(&want->lane->bins, want->bytes, &above);
    for (; fit; above++, fit = lochi_pool_bins_from(&want->lane->bins, 0, &above))
        for (; fit && fits < PLACE_FITS; fit = fit->list_next, fits++) {
            if (fit->is_piece) continue;
            place_set_hole(pool, fit, &hole);
            place_offer_hole(pool, &hole, &search);
        }
    int bin = POOL_BINS - 1;
    const size_t most = want->bytes < pool->cell_bytes ? want->bytes : pool->cell_bytes;
    const bool is_hopeless = search.best.hint && search.best.cost + (double)most <= search.price;
    unsigned holes = is_hopeless ? PLACE_HOLES : 0;
    for (pool_block *unmapped; holes < PLACE_HOLES && (unmapped = lochi_pool_bins_below(pool->unmapped_ranges, &bin));
         bin--)
        for (; unmapped && holes < PLACE_HOLES; unmapped = unmapped->list_next)
            if (place_measure(pool, unmapped, &search, &hole)) {
                place_offer_hole(pool, &hole, &search);
                holes++;
            }
    for (pool_block *stale = pool->stale.first; stale && holes < PLACE_HOLES; stale = stale->list_next)
        if (place_is_open(stale, &search) && place_measure(pool, stale, &search, &hole)) {
            place_offer_hole(pool, &hole, &search);
            holes++;
        }
    *best = search.best;
    return best->hint != NULL;
}

/* Tells whether a segment of pinned memory that is wholly free is too large to be cut for a request. Such a segment
 * would be missing for a request of its own size as long as the small block lives, and all of it would be pinned again.
 * A segment of its own for the small block costs memory while the large one is idle: only so much as the pool may hold
 * besides what it needed at most. */
static bool place_spares_segment(const lochi_pool *pool, const pool_want *want, const pool_block *fit)
{
    if (fit->before || fit->behind || fit->bytes / PLACE_SPARED_PART < want->bytes) return false;
    const size_t bytes = want->bytes > pool->smallest ? want->bytes : pool->smallest;
    return pool->reserved + bytes + pool->step_bytes <= lochi_pool_may_hold(pool, 0);
}

bool lochi_pool_may_gain(lochi_pool *pool, const pool_want *want, const pool_block *fit)
{
    lochi_lock_assert_held(&pool->lock);
    if (pool->is_of_graphs) return false; /* free memory stays: nothing is gained by leaving it free */
    if (pool->is_exact) return place_spares_segment(pool, want, fit);
    if (!lochi_pool_may_place(pool) || want->bytes <= POOL_ARENA_BLOCK_MAX) return false;
    place_search search = {want, false, 0, lochi_pool_price(pool), lochi_pool_usual_handle(pool), {0}};
    if (search.price > (double)(2 * search.handle + pool->cell_bytes)) return false; /* more than most spots waste */
    place_hole hole;
    place_set_hole(pool, fit, &hole);
    place_offer_hole(pool, &hole, &search);
    /* The best spot elsewhere wastes nothing at its ends and fills what is wasted there now. */
    const size_t most = want->bytes < pool->cell_bytes ? want->bytes : pool->cell_bytes;
    return search.best.hint && search.best.cost + (double)most > lochi_pool_search_price(pool);
}

/* --- gathering free handles --- */

static bool place_add_source(pool_place *plan, pool_handle *handle, pool_block *block)
{
    if (plan->sources_count == plan->sources_capacity) {
        const size_t capacity = plan->sources_capacity ? 2 * plan->sources_capacity : 64;
        pool_origin *grown = lochi_realloc(plan->sources, capacity * sizeof *grown);
        if (!grown) return false; /* fewer handles are found */
        plan->sources = grown;
        plan->sources_capacity = capacity;
    }
    plan->sources[plan->sources_count++] = (pool_origin){handle, block, 0};
    return true;
}

/* Gathers the handles that lie wholly in a free block. */
static void place_gather_block(lochi_pool *pool, pool_block *block, pool_place *plan)
{
    const uintptr_t end = block->start + block->bytes;
    uintptr_t at = lochi_pool_round(pool, block->start);
    while (at < end && end - at >= pool->cell_bytes) {
        pool_handle *handle = lochi_pool_find_range_cell(pool, at)->handle;
        const uintptr_t handle_end = handle->at + handle->bytes;
        if (handle->at == at && handle_end <= end) {
            handle->plan = plan->number;
            handle->home = block;
            if (!place_add_source(plan, handle, block)) return;
        }
        at = handle_end;
    }
}

static void place_gather_lane(lochi_pool *pool, pool_lane *lane, const pool_want *want, pool_place *plan)
{
    if (lane->capture) return; /* its addresses are in a graph */
    int bin = POOL_BINS - 1;
    for (pool_block *block; (block = lochi_pool_bins_below(&lane->bins, &bin)); bin--) {
        if (block->bytes < pool->cell_bytes / 2) return; /* blocks of smaller bins contain no whole cell */
        for (; block; block = block->list_next)
            if (!block->is_piece && lochi_pool_may_move(pool, block, want->lane)) place_gather_block(pool, block, plan);
    }
}

/* Gathers all handles that are idle now. */
static void place_gather(lochi_pool *pool, const pool_want *want, pool_place *plan)
{
    for (pool_handle *handle = pool->unmapped_handles; handle; handle = handle->next)
        if (!place_add_source(plan, handle, NULL)) break;
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next)
        place_gather_lane(pool, lane, want, plan);
}

static int place_compare(const void *a, const void *b)
{
    const pool_origin *x = a, *y = b;
    if (x->handle->bytes != y->handle->bytes) return x->handle->bytes > y->handle->bytes ? -1 : 1;
    if (!x->block != !y->block) return x->block ? 1 : -1; /* unmapped handles cost one call less */
    if (x->block && x->block->bytes != y->block->bytes) return x->block->bytes < y->block->bytes ? -1 : 1;
    return x->handle->at < y->handle->at ? -1 : x->handle->at > y->handle->at;
}

/* Keeps the sources that fit into a gap, do not lie in the spot, and do not return to an old address. Sorts them,
 * the largest first. */
static void place_sort(const pool_want *want, pool_place *plan)
{
    const uintptr_t start = plan->spot.start, end = start + want->bytes;
    size_t count = 0, gap_max = 0;
    for (size_t g = 0; g < plan->gaps_count; g++)
        if (plan->gaps[g].end - plan->gaps[g].start > gap_max) gap_max = plan->gaps[g].end - plan->gaps[g].start;
    for (size_t i = 0; i < plan->sources_count; i++) {
        const pool_origin *source = &plan->sources[i];
        const pool_handle *handle = source->handle;
        const bool is_there = source->block && handle->at + handle->bytes > start && handle->at < end;
        const bool is_taken = source->block && handle->plan != plan->number;
        if (handle->bytes <= gap_max && !is_there && !is_taken) plan->sources[count++] = *source;
    }
    plan->sources_count = count;
    if (count) qsort(plan->sources, count, sizeof *plan->sources, place_compare);
}

/* --- planning --- */

pool_block *lochi_pool_find_near(pool_block *near, uintptr_t address)
{
    while (near->start > address)
        near = near->before;
    while (near->start + near->bytes <= address)
        near = near->behind;
    return near;
}

/* Finds the stretches of a spot without memory, the old addresses to which handles return, and the old mappings that
 * have to go. Returns false if an old mapping may not go or is still in use, or if there are too many. */
static bool place_find_gaps(lochi_pool *pool, const pool_want *want, bool may_drop, bool is_returning, pool_place *plan)
{
    const uintptr_t end = plan->spot.start + want->bytes;
    pool_block *block = lochi_pool_find_near(plan->spot.hint, plan->spot.start);
    for (; block && block->start < end; block = block->behind) {
        const pool_state state = lochi_pool_state(block);
        const uintptr_t block_end = block->start + block->bytes;
        bool is_unmapped = state == POOL_UNMAPPED;
        if (state == POOL_STALE) {
            if (plan->revived_count + plan->stale_count == POOL_PLACE_OLD) return false;
            pool_handle *handle = block->handle;
            const bool is_there = handle->at + handle->bytes > plan->spot.start && handle->at < end;
            is_unmapped = is_there || !is_returning || handle->plan != plan->number;
            if (is_unmapped && (!may_drop || !place_has_passed(block))) return false;
            if (is_unmapped) {
                plan->stale[plan->stale_count++] = block;
            } else {
                handle->plan = 0; /* used up */
                plan->revived[plan->revived_count++] = block;
            }
        }
        if (is_unmapped) {
            const uintptr_t first = plan->spot.start & ~(uintptr_t)(pool->cell_bytes - 1);
            const uintptr_t from = first > block->start ? first : block->start;
            const uintptr_t to = end < block_end ? lochi_pool_round(pool, end) : block_end;
            if (!place_add_stretch(plan->gaps, &plan->gaps_count, POOL_PLACE_GAPS, from, to)) return false;
            plan->missing += to - from;
        }
    }
    return true;
}

/* Leaves idle handles where they are if new memory costs less than remapping them. */
static void place_choose_creation(lochi_pool *pool, pool_place *plan)
{
    size_t bytes = 0, count = 0;
    for (; count < plan->sources_count && bytes < plan->missing; count++)
        bytes += plan->sources[count].handle->bytes;
    plan->is_created = count && lochi_pool_may_create(pool, plan->missing, count);
    if (plan->is_created) plan->sources_count = 0;
}

size_t lochi_pool_assign(lochi_pool *pool, const pool_want *want, pool_place *plan)
{
    lochi_lock_assert_held(&pool->lock);
    place_sort(want, plan);
    place_choose_creation(pool, plan);
    size_t missing = plan->missing;
    for (size_t i = 0; i < plan->sources_count && missing; i++) {
        pool_origin *source = &plan->sources[i];
        for (size_t g = 0; g < plan->gaps_count; g++) {
            pool_gap *gap = &plan->gaps[g];
            if (gap->end - gap->start < source->handle->bytes) continue;
            source->to = gap->start;
            gap->start += source->handle->bytes;
            missing -= source->handle->bytes;
            break;
        }
    }
    return missing;
}

bool lochi_pool_plan_place(lochi_pool *pool, const pool_want *want, bool may_drop, pool_place *plan)
{
    lochi_pool_assert_both(pool);
    plan->number = 0;
    plan->sources = NULL;
    plan->sources_count = plan->sources_capacity = 0;
    plan->gaps_count = plan->revived_count = plan->stale_count = plan->missing = 0;
    if (!place_find(pool, want, may_drop, 0, &plan->spot)) return false;
    if (!plan->spot.missing) return true;
    const pool_spot spot = plan->spot;
    plan->number = ++pool->detached.plans;
    place_gather(pool, want, plan);
    if (pool->stale.first && place_find(pool, want, may_drop, plan->number, &plan->spot) &&
        place_find_gaps(pool, want, may_drop, true, plan))
        return true;
    plan->gaps_count = plan->revived_count = plan->stale_count = plan->missing = 0;
    plan->spot = spot;
    for (size_t i = 0; i < plan->sources_count; i++)
        plan->sources[i].handle->plan = plan->number;
    return place_find_gaps(pool, want, may_drop, false, plan);
}
