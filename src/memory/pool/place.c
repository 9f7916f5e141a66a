/* SPDX-License-Identifier: MIT */
/* Chooses the addresses for memory when no free block fits: the spot that lacks the least memory, with free memory
 * on one or both sides of a bare stretch. The missing memory comes from idle handles elsewhere, the largest that fit
 * first, and from new handles. */
#include "memory/pool/place.h"
#include "base/heap.h"
#include "memory/pool/cells.h"
#include "memory/pool/handle.h"
#include "memory/pool/lane.h"
#include "memory/pool/outside.h"
#include <stdlib.h>

#define PLACE_LOOKS 256 /* free blocks that are compared */
#define PLACE_STEPS 512 /* neighbours of each */

/* --- choosing a place --- */

static void place_offer(pool_spot *best, uintptr_t start, size_t missing, size_t hole, pool_block *hint)
{
    if (missing > best->missing || (missing == best->missing && hole >= best->hole)) return;
    *best = (pool_spot){start, missing, hole, hint};
}

/* A search for a place. */
typedef struct place_search {
    const pool_want *want;
    uint64_t plan;   /* handles with this number are idle and may return to their old addresses; 0 if none may */
    uintptr_t start; /* of the spot under examination */
} place_search;

/* Tells whether a block's addresses can be part of a spot. */
static bool place_is_open(const pool_block *block, const place_search *search)
{
    const pool_state state = lochi_pool_state(block);
    const pool_lane *lane = search->want->lane;
    if (state == POOL_FADING) { /* its handle is idle, and its present address is not part of the spot */
        const pool_handle *handle = block->handle;
        return handle && search->plan && handle->plan == search->plan &&
               (handle->at + handle->bytes <= search->start || handle->at >= search->start + search->want->bytes);
    }
    return state == POOL_BARE || (state == POOL_FREE && block->lane == lane && !block->is_nest && !block->is_piece);
}

/* Searches for a spot from the start of a free block upwards. */
static void place_look_up(const lochi_pool *pool, pool_block *block, place_search *search, pool_spot *best)
{
    const pool_want *want = search->want;
    const uintptr_t start = (block->start + want->alignment - 1) & ~(uintptr_t)(want->alignment - 1);
    search->start = start;
    const uintptr_t end = start + want->bytes;
    size_t missing = 0;
    pool_block *last = block;
    for (unsigned steps = 0; last && place_is_open(last, search) && steps < PLACE_STEPS; last = last->behind, steps++) {
        const uintptr_t last_end = last->start + last->bytes;
        if (lochi_pool_state(last) == POOL_BARE && start < last_end) {
            const uintptr_t from = start > last->start ? start & ~(uintptr_t)(pool->cell_bytes - 1) : last->start;
            missing += lochi_pool_round(pool, (end < last_end ? end : last_end) - from);
            if (missing > best->missing) return;
        }
        if (last_end >= end) {
            place_offer(best, start, missing, last_end - block->start, block);
            return;
        }
    }
}

/* Searches for a spot from the end of a free block downwards. */
static void place_look_down(const lochi_pool *pool, pool_block *block, place_search *search, pool_spot *best)
{
    const pool_want *want = search->want;
    const uintptr_t block_end = block->start + block->bytes;
    if (block_end < want->bytes) return;
    const uintptr_t start = (block_end - want->bytes) & ~(uintptr_t)(want->alignment - 1);
    search->start = start;
    size_t missing = 0;
    const pool_block *first = block;
    for (unsigned steps = 0; first && place_is_open(first, search) && steps < PLACE_STEPS;
         first = first->before, steps++) {
        const uintptr_t first_end = first->start + first->bytes;
        if (lochi_pool_state(first) == POOL_BARE) {
            const uintptr_t from = start > first->start ? start & ~(uintptr_t)(pool->cell_bytes - 1) : first->start;
            missing += first_end - from;
            if (missing > best->missing) return;
        }
        if (first->start <= start) {
            place_offer(best, start, missing, block_end - first->start, block);
            return;
        }
    }
}

static bool place_find(lochi_pool *pool, const pool_want *want, uint64_t plan, pool_spot *best)
{
    place_search search = {want, plan, 0};
    *best = (pool_spot){.missing = SIZE_MAX};
    pool_block *bare = lochi_pool_bins_fit(&pool->bare, lochi_pool_round(pool, want->bytes), want->alignment, false);
    if (bare) {
        const uintptr_t start = (bare->start + want->alignment - 1) & ~(uintptr_t)(want->alignment - 1);
        const uintptr_t from = start & ~(uintptr_t)(pool->cell_bytes - 1);
        place_offer(best, start, lochi_pool_round(pool, start + want->bytes - from), bare->bytes, bare);
    }
    int bin = POOL_BINS - 1;
    unsigned looks = 0;
    for (pool_block *block; (block = lochi_pool_bins_below(&want->lane->bins, &bin)); bin--)
        for (; block && looks < PLACE_LOOKS; block = block->list_next, looks++) {
            place_look_up(pool, block, &search, best);
            place_look_down(pool, block, &search, best);
        }
    return best->missing != SIZE_MAX;
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
        pool_handle *handle = lochi_pool_find_cell(pool, at)->handle;
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
    for (pool_handle *handle = pool->loose; handle; handle = handle->next)
        if (!place_add_source(plan, handle, NULL)) break;
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next)
        place_gather_lane(pool, lane, want, plan);
}

static int place_compare(const void *a, const void *b)
{
    const pool_origin *x = a, *y = b;
    if (x->handle->bytes != y->handle->bytes) return x->handle->bytes > y->handle->bytes ? -1 : 1;
    if (!x->block != !y->block) return x->block ? 1 : -1; /* loose handles cost one call less */
    if (x->block && x->block->bytes != y->block->bytes) return x->block->bytes < y->block->bytes ? -1 : 1;
    return x->handle->at < y->handle->at ? -1 : x->handle->at > y->handle->at;
}

/* Keeps the sources that fit into a gap, do not lie in the spot, and do not return to an old address. Sorts them,
 * the largest first. */
static void place_sort(const pool_want *want, pool_place *plan)
{
    const uintptr_t start = plan->spot.start, end = start + want->bytes;
    size_t count = 0;
    for (size_t i = 0; i < plan->sources_count; i++) {
        const pool_origin *source = &plan->sources[i];
        const pool_handle *handle = source->handle;
        const bool is_there = source->block && handle->at + handle->bytes > start && handle->at < end;
        const bool is_taken = source->block && handle->plan != plan->number;
        if (handle->bytes <= plan->gap_max && !is_there && !is_taken) plan->sources[count++] = *source;
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

/* Finds the stretches of a spot without memory, and the old addresses to which handles return. Returns false if one
 * handle would have to return to two addresses, or if there are too many. */
static bool place_find_gaps(lochi_pool *pool, const pool_want *want, pool_place *plan)
{
    const uintptr_t end = plan->spot.start + want->bytes;
    pool_block *block = lochi_pool_find_near(plan->spot.hint, plan->spot.start);
    for (; block && block->start < end; block = block->behind) {
        const pool_state state = lochi_pool_state(block);
        const uintptr_t block_end = block->start + block->bytes;
        if (state == POOL_FADING) {
            if (block->handle->plan != plan->number || plan->revived_count == POOL_PLACE_REVIVED) return false;
            block->handle->plan = 0; /* used up */
            plan->revived[plan->revived_count++] = block;
        } else if (state == POOL_BARE) {
            if (plan->gaps_count == POOL_PLACE_GAPS) return false;
            const uintptr_t first = plan->spot.start & ~(uintptr_t)(pool->cell_bytes - 1);
            const uintptr_t from = first > block->start ? first : block->start;
            const uintptr_t to = end < block_end ? lochi_pool_round(pool, end) : block_end;
            plan->gaps[plan->gaps_count++] = (pool_gap){from, to};
            plan->missing += to - from;
            if (to - from > plan->gap_max) plan->gap_max = to - from;
        }
    }
    return true;
}

size_t lochi_pool_assign(const pool_want *want, pool_place *plan)
{
    place_sort(want, plan);
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

bool lochi_pool_plan_place(lochi_pool *pool, const pool_want *want, pool_place *plan)
{
    lochi_pool_assert_both(pool);
    plan->number = ++pool->plans;
    place_gather(pool, want, plan);
    if (pool->fading && place_find(pool, want, plan->number, &plan->spot) && place_find_gaps(pool, want, plan))
        return true;
    plan->gaps_count = plan->revived_count = plan->missing = plan->gap_max = 0;
    if (!place_find(pool, want, 0, &plan->spot)) return false;
    for (size_t i = 0; i < plan->sources_count; i++)
        plan->sources[i].handle->plan = plan->number;
    return place_find_gaps(pool, want, plan);
}
