/* SPDX-License-Identifier: MIT */
/* Chooses the addresses for memory when no free block fits: the spot that lacks the least memory, with free memory
 * on one or both sides of a bare stretch. The missing memory comes from idle handles elsewhere, the largest that fit
 * first, and from new handles. */
#include "memory/pool/place.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/cells.h"
#include "memory/pool/handle.h"
#include "memory/pool/heap.h"
#include "memory/pool/lane.h"
#include "memory/pool/segment.h"
#include <loch/host.h>
#include <stdlib.h>

#define PLACE_LOOKS 256 /* free blocks that are compared */
#define PLACE_STEPS 512 /* neighbours of each */

/* Size of new handles. Small handles are idle more often; large ones cost fewer driver calls. While a program
 * allocates and frees little, a new handle is a small part of the reserved memory, because it will not move soon.
 * After that the size grows with the square of the reserved bytes, from one granule at 4 GiB on, and with the square
 * of the request above PLACE_REQUEST. */
#define PLACE_GROWING_PART 64

#define PLACE_GROWING_MAX ((size_t)64 << 20)
#define PLACE_GROWING_FREED 4 /* "frees little": less than this part of the reserved bytes was freed */
#define PLACE_REQUEST ((size_t)112 << 20)
#define PLACE_HANDLE_MAX ((size_t)128 << 20)

/* New memory is taken instead of remapping free memory while the pool holds only a little more than the most in use.
 * How much more depends on the share of the program's time spent on remapping, measured with the host's clock. */
#define PLACE_EXTRA_PART 64

#define PLACE_BUSY_PERCENT 2       /* share of the time from which remapping counts as slow: */
#define PLACE_BUSY_EXTRA_PART 33   /* then this part more may be held, and */
#define PLACE_BUSY_HANDLE_PART 256 /* handles have at least this part of the reserved bytes */
#define PLACE_MAD_PERCENT 40       /* from this share on, half the share in percent may be held more */
#define PLACE_MAD_MAX 50
#define PLACE_WINDOW_NS 1000000000u
#define PLACE_WINDOW_MIN_NS 20000000u /* so that the first remaps of a program do not count as all of its time */

/* --- choosing a place --- */

typedef struct place_spot {
    uintptr_t start;
    size_t missing;   /* bytes without memory; SIZE_MAX if no spot was found yet */
    size_t hole;      /* bytes that are free or bare around it */
    pool_block *hint; /* a block of the hole */
} place_spot;

static void place_offer(place_spot *best, uintptr_t start, size_t missing, size_t hole, pool_block *hint)
{
    if (missing > best->missing || (missing == best->missing && hole >= best->hole)) return;
    *best = (place_spot){start, missing, hole, hint};
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
static void place_look_up(const lochi_pool *pool, pool_block *block, place_search *search, place_spot *best)
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
static void place_look_down(const lochi_pool *pool, pool_block *block, place_search *search, place_spot *best)
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

static bool place_find(lochi_pool *pool, const pool_want *want, uint64_t plan, place_spot *best)
{
    place_search search = {want, plan, 0};
    *best = (place_spot){.missing = SIZE_MAX};
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

typedef struct place_source {
    pool_handle *handle;
    pool_block *block; /* the free block it lay in when it was gathered; NULL if it is loose */
    uintptr_t to;      /* 0 if not planned */
} place_source;

typedef struct place_gap {
    uintptr_t start, end;
} place_gap;

#define PLACE_GAPS 16
#define PLACE_REVIVED 512

typedef struct place_plan {
    uint64_t number;
    place_spot spot;
    place_gap gaps[PLACE_GAPS];
    size_t gaps_count, gap_max, missing;
    pool_block *revived[PLACE_REVIVED]; /* fading blocks whose handles return to them */
    size_t revived_count;
    place_source *sources;
    size_t sources_count, sources_capacity;
} place_plan;

static bool place_add_source(place_plan *plan, pool_handle *handle, pool_block *block)
{
    if (plan->sources_count == plan->sources_capacity) {
        const size_t capacity = plan->sources_capacity ? 2 * plan->sources_capacity : 64;
        place_source *grown = lochi_realloc(plan->sources, capacity * sizeof *grown);
        if (!grown) return false; /* fewer handles are found */
        plan->sources = grown;
        plan->sources_capacity = capacity;
    }
    plan->sources[plan->sources_count++] = (place_source){handle, block, 0};
    return true;
}

/* Gathers the handles that lie wholly in a free block. */
static void place_gather_block(lochi_pool *pool, pool_block *block, place_plan *plan)
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

static void place_gather_lane(lochi_pool *pool, pool_lane *lane, const pool_want *want, place_plan *plan)
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
static void place_gather(lochi_pool *pool, const pool_want *want, place_plan *plan)
{
    for (pool_handle *handle = pool->loose; handle; handle = handle->next)
        if (!place_add_source(plan, handle, NULL)) break;
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next)
        place_gather_lane(pool, lane, want, plan);
}

static int place_compare(const void *a, const void *b)
{
    const place_source *x = a, *y = b;
    if (x->handle->bytes != y->handle->bytes) return x->handle->bytes > y->handle->bytes ? -1 : 1;
    if (!x->block != !y->block) return x->block ? 1 : -1; /* loose handles cost one call less */
    if (x->block && x->block->bytes != y->block->bytes) return x->block->bytes < y->block->bytes ? -1 : 1;
    return x->handle->at < y->handle->at ? -1 : x->handle->at > y->handle->at;
}

/* Keeps the sources that fit into a gap, do not lie in the spot, and do not return to an old address. Sorts them,
 * the largest first. */
static void place_sort(const pool_want *want, place_plan *plan)
{
    const uintptr_t start = plan->spot.start, end = start + want->bytes;
    size_t count = 0;
    for (size_t i = 0; i < plan->sources_count; i++) {
        const place_source *source = &plan->sources[i];
        const pool_handle *handle = source->handle;
        const bool is_there = source->block && handle->at + handle->bytes > start && handle->at < end;
        const bool is_taken = source->block && handle->plan != plan->number;
        if (handle->bytes <= plan->gap_max && !is_there && !is_taken) plan->sources[count++] = *source;
    }
    plan->sources_count = count;
    if (count) qsort(plan->sources, count, sizeof *plan->sources, place_compare);
}

/* --- planning --- */

/* Finds the block that contains an address. The search starts at a block near it. */
static pool_block *place_find_block(pool_block *near, uintptr_t address)
{
    while (near->start > address)
        near = near->before;
    while (near->start + near->bytes <= address)
        near = near->behind;
    return near;
}

/* Finds the stretches of a spot without memory, and the old addresses to which handles return. Returns false if one
 * handle would have to return to two addresses, or if there are too many. */
static bool place_find_gaps(lochi_pool *pool, const pool_want *want, place_plan *plan)
{
    const uintptr_t end = plan->spot.start + want->bytes;
    pool_block *block = place_find_block(plan->spot.hint, plan->spot.start);
    for (; block && block->start < end; block = block->behind) {
        const pool_state state = lochi_pool_state(block);
        const uintptr_t block_end = block->start + block->bytes;
        if (state == POOL_FADING) {
            if (block->handle->plan != plan->number || plan->revived_count == PLACE_REVIVED) return false;
            block->handle->plan = 0; /* used up */
            plan->revived[plan->revived_count++] = block;
        } else if (state == POOL_BARE) {
            if (plan->gaps_count == PLACE_GAPS) return false;
            const uintptr_t first = plan->spot.start & ~(uintptr_t)(pool->cell_bytes - 1);
            const uintptr_t from = first > block->start ? first : block->start;
            const uintptr_t to = end < block_end ? lochi_pool_round(pool, end) : block_end;
            plan->gaps[plan->gaps_count++] = (place_gap){from, to};
            plan->missing += to - from;
            if (to - from > plan->gap_max) plan->gap_max = to - from;
        }
    }
    return true;
}

/* Assigns an address to each source, the largest first. Gaps shrink from their start. Returns the bytes that stay
 * without memory. */
static size_t place_assign(place_plan *plan)
{
    size_t missing = plan->missing;
    for (size_t i = 0; i < plan->sources_count && missing; i++) {
        place_source *source = &plan->sources[i];
        for (size_t g = 0; g < plan->gaps_count; g++) {
            place_gap *gap = &plan->gaps[g];
            if (gap->end - gap->start < source->handle->bytes) continue;
            source->to = gap->start;
            gap->start += source->handle->bytes;
            missing -= source->handle->bytes;
            break;
        }
    }
    return missing;
}

static size_t place_power_below(size_t value)
{
    return value ? (size_t)1 << (63 - __builtin_clzll(value)) : 0;
}

/* Returns the percentage of the time spent on remapping; 0 if the clock does not tell. */
static uint64_t place_get_share(const lochi_pool *pool)
{
    if (!pool->supply_ns) return 0;
    const uint64_t passed_ns = loch_host_now_ns() - pool->since_ns;
    return pool->supply_ns / ((passed_ns > PLACE_WINDOW_MIN_NS ? passed_ns : PLACE_WINDOW_MIN_NS) / 100);
}

size_t lochi_pool_choose_handle(const lochi_pool *pool, size_t request)
{
    lochi_lock_assert_held(&pool->lock);
    if (pool->options.handle_bytes) return pool->options.handle_bytes;
    const size_t granules = pool->reserved >> 21;
    size_t bytes = place_power_below(granules < (size_t)1 << 20 ? granules * granules : PLACE_HANDLE_MAX);
    if (place_get_share(pool) >= PLACE_BUSY_PERCENT && bytes < pool->reserved / PLACE_BUSY_HANDLE_PART)
        bytes = place_power_below(pool->reserved / PLACE_BUSY_HANDLE_PART);
    if (pool->freed_bytes < pool->reserved / PLACE_GROWING_FREED) {
        bytes = place_power_below(pool->reserved / PLACE_GROWING_PART);
        if (bytes > PLACE_GROWING_MAX) bytes = PLACE_GROWING_MAX;
    }
    const size_t times = request / (PLACE_REQUEST / 16); /* in sixteenths, so that the square stays an integer */
    const size_t by_request = place_power_below((times < 4096 ? times * times : 4096 * 4096) / 256 * pool->cell_bytes);
    if (bytes < by_request) bytes = by_request;
    if (bytes > PLACE_HANDLE_MAX) bytes = PLACE_HANDLE_MAX;
    return bytes > pool->cell_bytes ? lochi_pool_round(pool, bytes) : pool->cell_bytes;
}

/* --- carrying it out --- */

static loch_status place_fill_gap(lochi_pool *pool, const pool_want *want, place_gap *gap, pool_block *near)
{
    while (gap->start < gap->end) {
        size_t bytes = lochi_pool_choose_handle(pool, want->bytes);
        if (bytes > gap->end - gap->start) bytes = gap->end - gap->start;
        pool_handle *handle;
        LOCH_TRY_RETURN(lochi_pool_create_some(pool, bytes, &handle));
        pool_block *bare = place_find_block(near, gap->start);
        const loch_status status = lochi_pool_map_free(pool, handle, bare, gap->start, want->lane);
        if (status != LOCH_OK) {
            lochi_pool_destroy_loose(pool, handle);
            return status;
        }
        gap->start += handle->bytes;
    }
    return LOCH_OK;
}

/* Carries out the planned remaps. Records stay until everything is settled, so the records in the plan remain valid. */
static loch_status place_move(lochi_pool *pool, const pool_want *want, const place_plan *plan)
{
    for (size_t i = 0; i < plan->sources_count; i++) {
        const place_source *source = &plan->sources[i];
        if (!source->to) continue;
        pool_block *bare = place_find_block(plan->spot.hint, source->to);
        if (!source->block) {
            LOCH_TRY_RETURN(lochi_pool_map_free(pool, source->handle, bare, source->to, want->lane));
            continue;
        }
        pool_block *block =
            place_find_block(source->block, source->handle->at); /* the block may have been cut meanwhile */
        LOCH_TRY_RETURN(lochi_pool_move_free(pool, source->handle, block, bare, source->to, want->lane));
    }
    return LOCH_OK;
}

/* Plans where memory goes and where it comes from: first with handles that return to old addresses, then without. */
static bool place_plan_for(lochi_pool *pool, const pool_want *want, place_plan *plan)
{
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

static loch_status place_revive(lochi_pool *pool, const pool_want *want, const place_plan *plan)
{
    for (size_t i = 0; i < plan->revived_count; i++) {
        const pool_handle *handle = plan->revived[i]->handle;
        pool_block *home = place_find_block(handle->home, handle->at);
        LOCH_TRY_RETURN(lochi_pool_revive(pool, plan->revived[i], home, want->lane));
    }
    return LOCH_OK;
}

/* Tells whether `missing` bytes may be newly created instead of remapped. */
static bool place_may_take_extra(const lochi_pool *pool, const pool_want *want, size_t missing)
{
    const size_t now = pool->used - pool->waiting_bytes + want->bytes;
    const size_t most = now > pool->peak_used ? now : pool->peak_used;
    const uint64_t share = place_get_share(pool);
    size_t extra = most / (share >= PLACE_BUSY_PERCENT ? PLACE_BUSY_EXTRA_PART : PLACE_EXTRA_PART);
    if (share >= PLACE_MAD_PERCENT) extra = most / 200 * (share < PLACE_MAD_MAX ? share : PLACE_MAD_MAX);
    return pool->reserved + pool->asleep_bytes + missing <= most + extra;
}

/* Adds the time spent on remapping. Older times count less and less. */
static void place_note_time(lochi_pool *pool, uint64_t start_ns)
{
    const uint64_t now_ns = loch_host_now_ns();
    pool->supply_ns += now_ns - start_ns;
    if (now_ns - pool->since_ns < PLACE_WINDOW_NS) return;
    pool->supply_ns /= 2;
    pool->since_ns += (now_ns - pool->since_ns) / 2;
}

static loch_status place_carry_out(lochi_pool *pool, const pool_want *want, pool_source source)
{
    place_plan plan = {0};
    loch_status status = LOCH_OK;
    if (source == POOL_EXTRA &&
        !place_may_take_extra(pool, want, pool->cell_bytes)) /* every plan lacks at least a cell */
        return LOCH_FAIL(FRAGMENTED, "the pool does not hold more memory than needed now");
    if (!place_plan_for(pool, want, &plan)) {
        lochi_free(plan.sources);
        return LOCH_FAIL(FRAGMENTED, "the pool has no free addresses left");
    }
    if (source == POOL_EXTRA) plan.sources_count = 0;
    place_sort(want, &plan);
    const size_t left = place_assign(&plan);
    if (source == POOL_EXTRA && !place_may_take_extra(pool, want, plan.missing))
        status = LOCH_FAIL(FRAGMENTED, "the pool does not hold more memory than needed now");
    if (left && source == POOL_MOVED) status = LOCH_FAIL(FRAGMENTED, "no idle memory can be mapped where it is needed");
    if (left && status == LOCH_OK) status = lochi_pool_check_limit(pool, left);
    if (status == LOCH_OK) status = place_revive(pool, want, &plan);
    if (status == LOCH_OK) status = place_move(pool, want, &plan);
    for (size_t g = 0; status == LOCH_OK && g < plan.gaps_count; g++)
        status = place_fill_gap(pool, want, &plan.gaps[g], plan.spot.hint);
    lochi_pool_settle(pool);
    lochi_free(plan.sources);
    return status;
}

/* Takes a raw segment for the request, or a smaller one if the device has no larger one. */
static loch_status place_take_segment(lochi_pool *pool, const pool_want *want)
{
    const size_t slack = want->alignment > pool->cell_bytes ? want->alignment : 0;
    const size_t needed = lochi_pool_round(pool, want->bytes + slack);
    const size_t wished = lochi_pool_choose_handle(pool, want->bytes);
    if (wished > needed) {
        const loch_error saved = lochi_error_save();
        if (lochi_pool_take_segment(pool, wished, want->lane) == LOCH_OK) return LOCH_OK;
        lochi_error_restore(&saved);
    }
    return lochi_pool_take_segment(pool, needed, want->lane);
}

loch_status lochi_pool_supply(lochi_pool *pool, const pool_want *want, pool_source source)
{
    lochi_lock_assert_held(&pool->lock);
    if (pool->range && source != POOL_MOVED) return LOCH_FAIL(LIMIT, "a child has no memory beyond its range");
    if (!pool->is_virtual)
        return source != POOL_MOVED ? place_take_segment(pool, want)
                                    : LOCH_FAIL(FRAGMENTED, "raw memory cannot be remapped");
    const uint64_t moved = pool->handles_moved + pool->handles_revived;
    const uint64_t start_ns = pool->is_timed ? loch_host_now_ns() : 0, moves = pool->handles_moved;
    if (!pool->since_ns) pool->since_ns = start_ns;
    const loch_status status = place_carry_out(pool, want, source);
    if (pool->is_timed && pool->handles_moved != moves) place_note_time(pool, start_ns);
    if (pool->handles_moved + pool->handles_revived != moved)
        lochi_pool_mark(pool, want->lane); /* old addresses are unmapped after this event */
    return status;
}

/* --- giving back --- */

static pool_handle *place_first_whole(lochi_pool *pool, const pool_block *block, uintptr_t from)
{
    return lochi_pool_find_whole(pool, from > block->start ? from : block->start, block->start + block->bytes);
}

bool lochi_pool_has_unfinished(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        int bin = POOL_BINS - 1;
        for (pool_block *block; !lane->capture && (block = lochi_pool_bins_below(&lane->bins, &bin)); bin--)
            for (; block && block->bytes >= pool->cell_bytes; block = block->list_next) {
                if (lochi_pool_has_passed(lane, block->epoch) || block->is_piece) continue;
                const pool_handle *handle = place_first_whole(pool, block, 0);
                for (; handle; handle = place_first_whole(pool, block, handle->at + handle->bytes))
                    if (!lochi_pool_is_past(block, handle)) return true;
            }
    }
    return false;
}

size_t lochi_pool_count_idle(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    size_t bytes = pool->loose_bytes;
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        int bin = POOL_BINS - 1;
        for (pool_block *block; (block = lochi_pool_bins_below(&lane->bins, &bin)); bin--)
            for (; block; block = block->list_next) {
                const pool_handle *handle = place_first_whole(pool, block, 0);
                for (; handle; handle = place_first_whole(pool, block, handle->at + handle->bytes))
                    bytes += handle->bytes;
            }
    }
    return bytes;
}

pool_handle *lochi_pool_find_idle(lochi_pool *pool, const pool_lane *lane, size_t max_bytes, pool_block **out)
{
    lochi_lock_assert_held(&pool->lock);
    int bin = POOL_BINS - 1;
    for (pool_block *block; (block = lochi_pool_bins_below(&lane->bins, &bin)); bin--)
        for (; block; block = block->list_next) {
            if (block->bytes < pool->cell_bytes || block->is_piece) continue;
            pool_handle *handle = place_first_whole(pool, block, 0);
            while (handle && (handle->bytes > max_bytes || !lochi_pool_is_past(block, handle)))
                handle = place_first_whole(pool, block, handle->at + handle->bytes);
            if (!handle) continue;
            *out = block;
            return handle;
        }
    return NULL;
}

size_t lochi_pool_give_back(lochi_pool *pool, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    size_t gone = 0;
    if (pool->range) return 0; /* a range stays until the pool ends */
    while (pool->loose && gone < bytes) {
        gone += pool->loose->bytes;
        lochi_pool_destroy_loose(pool, pool->loose);
    }
    for (pool_lane *lane = pool->lanes; lane && gone < bytes; lane = lane->next) {
        if (lane->capture) continue;
        pool_block *block;
        for (pool_handle *handle; gone < bytes && (handle = lochi_pool_find_idle(pool, lane, SIZE_MAX, &block));) {
            const size_t size = handle->handle ? handle->bytes : handle->raw_bytes;
            const loch_status status = handle->handle ? lochi_pool_destroy_free(pool, handle, block)
                                                      : lochi_pool_drop_segment(pool, handle, block);
            if (status != LOCH_OK) return gone;
            gone += size;
        }
    }
    return gone;
}
