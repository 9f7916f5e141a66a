/* SPDX-License-Identifier: MIT */
/* Compaction: which blocks to move where, so that free memory that lies in pieces can serve one block.
 *
 * Where handles can be mapped elsewhere, free memory is as good as joined once it is in whole handles: so handles with little live
 * memory for their size are vacated, into what is free in others, and when nothing fits there into what was vacated before, where
 * blocks lie side by side. For less than a handle, and in raw segments, which do not move, a window of neighbours is looked for that
 * is long enough and has the least in it. Where nothing fits anywhere, neighbours slide together, one after the other into the
 * free memory before it. Of these ways the one that moves the least is taken.
 *
 *   handle:    |  A A . . |  . B . . |  C C C .  |        vacate the second: B goes behind C
 *
 * A plan is made on a list of its own, and changes nothing. First all free memory is given to the stream that will copy, which waits for
 * the others on the device: so free neighbours are one block, as they are in the plan, and every move of the plan finds the
 * addresses behind the block that stood before them in the plan. Moves are carried out in the order of the plan; what fails in
 * between leaves a whole pool. All of it is under the pool's lock. */
#include "base/fail.h"
#include "base/heap.h"
#include "base/sized.h"
#include "memory/allocator.h"
#include "memory/movable.h"
#include "memory/pool_inside.h"
#include <stdlib.h>
#include <string.h>

#define COMPACT_NONE UINT32_MAX
#define COMPACT_WINDOWS 32     /* that are tried */
#define COMPACT_PASSES 6       /* over the handles, for each price */
#define COMPACT_FEW 6          /* holes that are compared */
#define COMPACT_SLIDE_PRICE 16 /* bytes that may slide for each that is joined */

typedef enum compact_kind {
    COMPACT_HOLE,  /* free memory */
    COMPACT_LIVE,  /* may move */
    COMPACT_FIXED, /* may not, or is no memory */
    COMPACT_TARGET /* where a block will be */
} compact_kind;

/* A piece of the addresses, in a list by address: first as the blocks are, then as the plan makes them. */
typedef struct compact_item {
    pool_block *block; /* of a target: once it is cut */
    uintptr_t start;
    size_t bytes;
    uint32_t before, behind;
    compact_kind kind;
    bool is_gone;    /* merged into a neighbour */
    uint32_t origin; /* of a target: what moves there */
    uint32_t tried;  /* the last pass in which a handle with this alone could not be emptied */
} compact_item;

typedef struct compact_handle {
    uintptr_t start;
    size_t bytes;
    size_t used;           /* bytes in it that are not free */
    size_t settled;        /* of those, bytes that stay */
    uint32_t first, count; /* of the items in it that may move */
} compact_handle;

/* A handle that could be emptied. */
typedef struct compact_candidate {
    float density; /* used, of its bytes */
    uint32_t handle;
} compact_candidate;

typedef struct compact_move {
    uint32_t from, to, before; /* items: what moves, its target, and what lies before that when it is cut */
    size_t batch;              /* targets of one batch are cut before the first of it moves */
    size_t bytes;
    uintptr_t source, target;
    bool is_slide; /* `from` into the free memory before it; the other items mean nothing */
} compact_move;

typedef struct compact_plan {
    lochi_pool *pool;
    pool_lane *lane;
    compact_item *items;
    uint32_t *lives; /* items that may move, by address */
    uint32_t *holes; /* items that are, or were, holes */
    compact_move *moves;
    compact_handle *handles;  /* by address */
    compact_candidate *order; /* the cheapest first */
    size_t items_count, lives_count, holes_count, handles_count;
    size_t moves_count, moved_bytes, joined_bytes, batches;
    uint32_t pass;
} compact_plan;

/* --- looking --- */

static void compact_end(compact_plan *plan)
{
    lochi_free(plan->items);
    lochi_free(plan->lives);
    lochi_free(plan->holes);
    lochi_free(plan->moves);
    lochi_free(plan->handles);
    lochi_free(plan->order);
}

static bool compact_is_hole(const compact_plan *plan, const pool_block *block)
{
    return lochi_pool_state(block) == POOL_FREE && block->lane == plan->lane && !block->is_piece;
}

static int compact_order_handles(const void *left, const void *right)
{
    const compact_handle *a = left, *b = right;
    return a->start < b->start ? -1 : a->start > b->start;
}

/* Room for everything that there is, and a target for everything that may move. */
static loch_status compact_begin(compact_plan *plan)
{
    const lochi_pool *pool = plan->pool;
    size_t blocks = 0, lives = 0;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        blocks++;
        lives += lochi_pool_is_movable(pool, block);
    }
    plan->items = lochi_alloc_array(blocks + lives + 1, sizeof *plan->items);
    plan->lives = lochi_alloc_array(lives + 1, sizeof *plan->lives);
    plan->holes = lochi_alloc_array(blocks + lives + 1, sizeof *plan->holes);
    plan->moves =
        lochi_alloc_array(2 * lives + 1, sizeof *plan->moves); /* one to a target, and one with its neighbours */
    plan->handles = lochi_alloc_array(pool->handles_count + 1, sizeof *plan->handles);
    plan->order = lochi_alloc_array(pool->handles_count + 1, sizeof *plan->order);
    if (!plan->items || !plan->lives || !plan->holes || !plan->moves || !plan->handles || !plan->order)
        return LOCH_FAIL(HOST_MEMORY, "no host memory to plan a compaction");
    for (const pool_handle *handle = pool->handles; handle; handle = handle->next)
        plan->handles[plan->handles_count++] = (compact_handle){.start = handle->at, .bytes = handle->bytes};
    qsort(plan->handles, plan->handles_count, sizeof *plan->handles, compact_order_handles);
    return LOCH_OK;
}

/* The first handle that ends behind an address. */
static size_t compact_find_handle(const compact_plan *plan, uintptr_t address)
{
    size_t low = 0, high = plan->handles_count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (plan->handles[middle].start + plan->handles[middle].bytes > address)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Counts memory of handles in (1) or out (-1), and what is joined by that: the handles that are empty. */
static void compact_count(compact_plan *plan, uintptr_t start, size_t bytes, bool is_settled, int sign)
{
    for (size_t i = compact_find_handle(plan, start); i < plan->handles_count && plan->handles[i].start < start + bytes;
         i++) {
        compact_handle *handle = &plan->handles[i];
        const uintptr_t handle_end = handle->start + handle->bytes, end = start + bytes;
        const size_t part = (end < handle_end ? end : handle_end) - (start > handle->start ? start : handle->start);
        const bool was_empty = !handle->used;
        handle->used = sign > 0 ? handle->used + part : handle->used - part;
        if (is_settled) handle->settled = sign > 0 ? handle->settled + part : handle->settled - part;
        if (was_empty) plan->joined_bytes -= handle->bytes;
        if (!handle->used) plan->joined_bytes += handle->bytes;
    }
}

static void compact_enter_live(compact_plan *plan, uint32_t item)
{
    const compact_item *live = &plan->items[item];
    for (size_t i = compact_find_handle(plan, live->start);
         i < plan->handles_count && plan->handles[i].start < live->start + live->bytes; i++)
        if (!plan->handles[i].count++) plan->handles[i].first = (uint32_t)plan->lives_count;
    plan->lives[plan->lives_count++] = item;
}

static void compact_enter(compact_plan *plan, pool_block *block)
{
    const uint32_t item = (uint32_t)plan->items_count++;
    const bool goes_on = item && plan->items[item - 1].block->behind == block;
    const pool_state state = lochi_pool_state(block);
    const bool is_hole = compact_is_hole(plan, block), is_live = lochi_pool_is_movable(plan->pool, block);
    plan->items[item] = (compact_item){.block = block,
                                       .start = block->start,
                                       .bytes = block->bytes,
                                       .before = goes_on ? item - 1 : COMPACT_NONE,
                                       .behind = COMPACT_NONE,
                                       .kind = is_hole   ? COMPACT_HOLE
                                               : is_live ? COMPACT_LIVE
                                                         : COMPACT_FIXED};
    if (goes_on) plan->items[item - 1].behind = item;
    if (is_hole) plan->holes[plan->holes_count++] = item;
    if (is_live) compact_enter_live(plan, item);
    const bool has_memory = state != POOL_BARE && state != POOL_FADING;
    if (!is_hole && has_memory) compact_count(plan, block->start, block->bytes, !is_live, 1);
}

static loch_status compact_look(compact_plan *plan)
{
    LOCH_TRY_RETURN(compact_begin(plan));
    plan->joined_bytes = plan->pool->loose_bytes;
    for (size_t i = 0; i < plan->handles_count; i++)
        plan->joined_bytes += plan->handles[i].bytes; /* empty until something is entered */
    for (pool_block *block = NULL; (block = lochi_pool_next_block(plan->pool, block));)
        compact_enter(plan, block);
    return LOCH_OK;
}

/* --- moves of the plan --- */

/* What it costs to put a block somewhere: handles that are empty would not be, and handles that could be emptied could not. */
static size_t compact_price(const compact_plan *plan, uintptr_t start, size_t bytes)
{
    size_t price = 0;
    for (size_t i = compact_find_handle(plan, start); i < plan->handles_count && plan->handles[i].start < start + bytes;
         i++) {
        const compact_handle *handle = &plan->handles[i];
        if (!handle->used)
            price += 2 * handle->bytes;
        else if (!handle->settled)
            price += handle->bytes - handle->used;
    }
    return price;
}

/* Of a few, the one that costs the least. */
static uint32_t compact_cheapest(const compact_plan *plan, const uint32_t *holes, size_t count, size_t bytes)
{
    uint32_t best = COMPACT_NONE;
    size_t least = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t price = compact_price(plan, plan->items[holes[i]].start, bytes);
        if (best != COMPACT_NONE && price >= least) continue;
        best = holes[i];
        least = price;
    }
    return best;
}

/* A hole that `bytes` fit in, outside of [start, end): the cheapest of the smallest few, of equal ones the highest, because handles are
 * emptied from below. Holes that are gone leave the list. */
static uint32_t compact_find_hole(compact_plan *plan, size_t bytes, uintptr_t start, uintptr_t end)
{
    uint32_t few[COMPACT_FEW];
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < plan->holes_count; i++) {
        const uint32_t index = plan->holes[i];
        const compact_item *hole = &plan->items[index];
        if (hole->is_gone) continue;
        plan->holes[kept++] = index;
        if (hole->bytes < bytes || (hole->start < end && hole->start + bytes > start)) continue;
        size_t at = count < COMPACT_FEW ? count++ : COMPACT_FEW;
        for (; at > 0; at--) {
            const compact_item *other = &plan->items[few[at - 1]];
            if (other->bytes < hole->bytes || (other->bytes == hole->bytes && other->start > hole->start)) break;
            if (at < COMPACT_FEW) few[at] = few[at - 1];
        }
        if (at < COMPACT_FEW) few[at] = index;
    }
    plan->holes_count = kept;
    return compact_cheapest(plan, few, count, bytes);
}

static void compact_link(compact_plan *plan, uint32_t before, uint32_t behind)
{
    if (before != COMPACT_NONE) plan->items[before].behind = behind;
    if (behind != COMPACT_NONE) plan->items[behind].before = before;
}

/* The item before a hole, but for holes that are used up: no block is left of those. */
static uint32_t compact_before(const compact_plan *plan, uint32_t hole)
{
    uint32_t before = plan->items[hole].before;
    while (before != COMPACT_NONE && plan->items[before].kind == COMPACT_HOLE)
        before = plan->items[before].before;
    return before;
}

/* Plans to put an item at the beginning of a hole. The place that it leaves is not a hole yet. */
static void compact_place(compact_plan *plan, uint32_t from, uint32_t into)
{
    const uint32_t stands_before = compact_before(plan, into);
    const uint32_t to = (uint32_t)plan->items_count++;
    compact_item *hole = &plan->items[into];
    const size_t bytes = plan->items[from].bytes;
    plan->items[to] = (compact_item){.start = hole->start,
                                     .bytes = bytes,
                                     .before = hole->before,
                                     .behind = into,
                                     .kind = COMPACT_TARGET,
                                     .origin = from};
    const uintptr_t target = hole->start;
    compact_link(plan, hole->before, to);
    hole->before = to;
    hole->start += bytes;
    hole->bytes -= bytes;
    plan->moves[plan->moves_count++] = (compact_move){.from = from,
                                                      .to = to,
                                                      .before = stands_before,
                                                      .batch = plan->batches,
                                                      .bytes = bytes,
                                                      .source = plan->items[from].start,
                                                      .target = target};
    plan->moved_bytes += bytes;
    compact_count(plan, plan->items[to].start, bytes, true, 1);
}

/* Takes the last move back; its item is where it was. */
static void compact_unplace(compact_plan *plan)
{
    const compact_move *move = &plan->moves[--plan->moves_count];
    const compact_item *target = &plan->items[move->to];
    compact_item *hole = &plan->items[target->behind];
    compact_count(plan, target->start, move->bytes, true, -1);
    hole->start -= move->bytes;
    hole->bytes += move->bytes;
    compact_link(plan, target->before, target->behind);
    plan->moved_bytes -= move->bytes;
    plan->items_count--;
}

/* An item and the hole behind it become one. */
static void compact_merge(compact_plan *plan, uint32_t item)
{
    const uint32_t behind = plan->items[item].behind;
    if (behind == COMPACT_NONE || plan->items[behind].kind != COMPACT_HOLE) return;
    plan->items[item].bytes += plan->items[behind].bytes;
    plan->items[behind].is_gone = true;
    plan->items[item].behind = plan->items[behind].behind;
    compact_link(plan, item, plan->items[behind].behind);
}

/* The place that a moved item leaves, and that was counted out, becomes a hole. */
static void compact_leave(compact_plan *plan, uint32_t from)
{
    compact_item *item = &plan->items[from];
    item->kind = COMPACT_HOLE;
    plan->holes[plan->holes_count++] = from;
    compact_merge(plan, from);
    const uint32_t before = item->before;
    if (before != COMPACT_NONE && plan->items[before].kind == COMPACT_HOLE) compact_merge(plan, before);
}

/* --- vacating handles --- */

static bool compact_is_there(const compact_plan *plan, uint32_t live)
{
    return plan->items[plan->lives[live]].kind == COMPACT_LIVE;
}

/* Bytes that have to move out of a handle. */
static size_t compact_cost(const compact_plan *plan, const compact_handle *handle)
{
    size_t bytes = 0;
    for (uint32_t i = handle->first; i < handle->first + handle->count; i++)
        if (compact_is_there(plan, i)) bytes += plan->items[plan->lives[i]].bytes;
    return bytes;
}

/* The only item that has to move out of a handle; NULL when there are several. */
static compact_item *compact_alone(const compact_plan *plan, const compact_handle *handle)
{
    compact_item *alone = NULL;
    for (uint32_t i = handle->first; i < handle->first + handle->count; i++) {
        if (!compact_is_there(plan, i)) continue;
        if (alone) return NULL;
        alone = &plan->items[plan->lives[i]];
    }
    return alone;
}

/* Plans a place elsewhere for everything in a handle; false when something fits nowhere. */
static bool compact_place_all(compact_plan *plan, const compact_handle *handle)
{
    for (uint32_t i = handle->first; i < handle->first + handle->count; i++) {
        if (!compact_is_there(plan, i)) continue;
        const uint32_t from = plan->lives[i];
        const uint32_t into =
            compact_find_hole(plan, plan->items[from].bytes, handle->start, handle->start + handle->bytes);
        if (into == COMPACT_NONE) return false;
        compact_place(plan, from, into);
    }
    return true;
}

/* Counts what the moves from `first` on leave behind, in (1) or out (-1). */
static void compact_count_left(compact_plan *plan, size_t first, int sign)
{
    for (size_t i = first; i < plan->moves_count; i++)
        compact_count(plan, plan->items[plan->moves[i].from].start, plan->moves[i].bytes, false, sign);
}

/* Plans to empty a handle, if that joins at least a `price`-th of what is moved; else nothing is planned. */
static bool compact_vacate(compact_plan *plan, const compact_handle *handle, size_t price, size_t budget)
{
    if (!handle->used || handle->settled || plan->moved_bytes + compact_cost(plan, handle) > budget) return false;
    compact_item *alone = compact_alone(plan, handle); /* a long block lies in many handles, and is tried once */
    if (alone && alone->tried == plan->pass) return false;
    const size_t moves = plan->moves_count, moved = plan->moved_bytes, joined = plan->joined_bytes;
    const bool is_placed = compact_place_all(plan, handle);
    compact_count_left(plan, moves, -1);
    const bool is_worth_it =
        plan->joined_bytes > joined && plan->joined_bytes - joined >= (plan->moved_bytes - moved) / price;
    if (is_placed && is_worth_it) {
        for (size_t i = moves; i < plan->moves_count; i++)
            compact_leave(plan, plan->moves[i].from);
        plan->batches++;
        return true;
    }
    compact_count_left(plan, moves, 1);
    while (plan->moves_count > moves)
        compact_unplace(plan);
    if (alone) alone->tried = plan->pass;
    return false;
}

/* A handle, then its neighbours as long as they are worth it: neighbours share blocks and holes. */
static bool compact_vacate_from(compact_plan *plan, size_t at, size_t goal, size_t price, size_t budget)
{
    if (!compact_vacate(plan, &plan->handles[at], price, budget)) return false;
    for (size_t i = at + 1; i < plan->handles_count && plan->joined_bytes < goal; i++)
        if (!compact_vacate(plan, &plan->handles[i], price, budget)) break;
    for (size_t i = at; i-- > 0 && plan->joined_bytes < goal;)
        if (!compact_vacate(plan, &plan->handles[i], price, budget)) break;
    return true;
}

static int compact_order_density(const void *left, const void *right)
{
    const compact_candidate *a = left, *b = right;
    if (a->density != b->density) return a->density < b->density ? -1 : 1;
    return a->handle < b->handle ? -1 : a->handle > b->handle;
}

/* Handles that could be emptied, the least dense first. Returns how many. */
static size_t compact_sort(compact_plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->handles_count; i++) {
        const compact_handle *handle = &plan->handles[i];
        if (!handle->used || handle->settled) continue;
        plan->order[count++] = (compact_candidate){(float)handle->used / (float)handle->bytes, (uint32_t)i};
    }
    qsort(plan->order, count, sizeof *plan->order, compact_order_density);
    return count;
}

/* Cheap handles first: those that give two bytes for each that is moved, then one for eight, then anything. */
static void compact_plan_handles(compact_plan *plan, size_t goal, size_t budget)
{
    static const size_t prices[] = {2, 8, SIZE_MAX};
    for (size_t p = 0; p < sizeof prices / sizeof *prices; p++) {
        bool goes_on = true;
        for (int pass = 0; pass < COMPACT_PASSES && goes_on; pass++) {
            goes_on = false;
            plan->pass++;
            const size_t count = compact_sort(plan);
            for (size_t i = 0; i < count && plan->joined_bytes < goal; i++)
                goes_on |= compact_vacate_from(plan, plan->order[i].handle, goal, prices[p], budget);
        }
        if (plan->joined_bytes >= goal) return;
    }
}

/* --- windows --- */

typedef struct compact_window {
    uint32_t first, last;
    size_t bytes, cost;
} compact_window;

/* The cheapest window of at least `goal` bytes that costs more than `above`, or as much and starts further on. */
static bool compact_find_window(const compact_plan *plan, size_t goal, const compact_window *above, compact_window *out)
{
    bool is_found = false;
    compact_window window = {.bytes = 0};
    for (uint32_t i = 0; i < plan->items_count; i++) {
        const compact_item *item = &plan->items[i];
        if (item->kind == COMPACT_FIXED || !window.bytes || item->before == COMPACT_NONE)
            window = (compact_window){.first = i};
        if (item->kind == COMPACT_FIXED) continue;
        window.last = i;
        window.bytes += item->bytes;
        if (item->kind == COMPACT_LIVE) window.cost += item->bytes;
        while (window.first != i && window.bytes - plan->items[window.first].bytes >= goal) {
            const compact_item *first = &plan->items[window.first++];
            window.bytes -= first->bytes;
            if (first->kind == COMPACT_LIVE) window.cost -= first->bytes;
        }
        const bool is_next =
            window.cost > above->cost || (window.cost == above->cost && (!above->bytes || window.first > above->first));
        if (window.bytes < goal || !is_next || (is_found && window.cost >= out->cost)) continue;
        *out = window;
        is_found = true;
    }
    return is_found;
}

/* Plans to empty a window; false, and nothing planned, when something of it fits nowhere else. */
static bool compact_empty_window(compact_plan *plan, const compact_window *window)
{
    const uintptr_t start = plan->items[window->first].start, end = start + window->bytes;
    bool is_placed = true;
    for (uint32_t i = window->first; i <= window->last && is_placed; i++) {
        if (plan->items[i].kind != COMPACT_LIVE) continue;
        const uint32_t into = compact_find_hole(plan, plan->items[i].bytes, start, end);
        is_placed = into != COMPACT_NONE;
        if (is_placed) compact_place(plan, i, into);
    }
    while (!is_placed && plan->moves_count)
        compact_unplace(plan);
    return is_placed;
}

static void compact_plan_window(compact_plan *plan, size_t goal, size_t budget)
{
    compact_window window = {.bytes = 0}, next;
    plan->joined_bytes = 0;
    for (size_t i = 0; i < COMPACT_WINDOWS && compact_find_window(plan, goal, &window, &next); i++) {
        if (next.cost > budget) return;
        if (compact_empty_window(plan, &next)) {
            plan->joined_bytes = next.bytes;
            return;
        }
        window = next;
    }
}

/* --- slides --- */

/* Neighbours that can slide together: from a hole to a hole, with blocks that may move in between. */
typedef struct compact_run {
    uint32_t first, last;
    size_t free, cost; /* bytes of the holes, and of the rest */
} compact_run;

/* Takes the first hole and what follows it out of a run that goes on. */
static void compact_shorten(const compact_plan *plan, compact_run *run)
{
    run->free -= plan->items[run->first++].bytes;
    while (plan->items[run->first].kind != COMPACT_HOLE)
        run->cost -= plan->items[run->first++].bytes;
}

/* The run with at least `goal` bytes of holes in which the least would move. The plan is as it was after looking. */
static bool compact_find_run(const compact_plan *plan, size_t goal, compact_run *out)
{
    bool is_found = false;
    compact_run run = {.free = 0};
    for (uint32_t i = 0; i < plan->items_count; i++) {
        const compact_item *item = &plan->items[i];
        if (item->kind == COMPACT_FIXED || item->before == COMPACT_NONE || !run.free) run = (compact_run){.first = i};
        if (item->kind == COMPACT_LIVE && run.free) run.cost += item->bytes;
        if (item->kind != COMPACT_HOLE) continue;
        run.free += item->bytes;
        run.last = i;
        while (run.first != i && run.free - plan->items[run.first].bytes >= goal)
            compact_shorten(plan, &run);
        if (run.free < goal || (is_found && run.cost >= out->cost)) continue;
        *out = run;
        is_found = true;
    }
    return is_found;
}

/* Plans to slide everything in a run; items keep their places in the list. */
static void compact_plan_run(compact_plan *plan, const compact_run *run)
{
    size_t gap = 0;
    for (uint32_t i = run->first;; i = plan->items[i].behind) {
        const compact_item *item = &plan->items[i];
        if (item->kind == COMPACT_HOLE) {
            gap += item->bytes;
        } else {
            plan->moves[plan->moves_count++] = (compact_move){.from = i,
                                                              .batch = plan->batches++,
                                                              .bytes = item->bytes,
                                                              .source = item->start,
                                                              .target = item->start - gap,
                                                              .is_slide = true};
            plan->moved_bytes += item->bytes;
        }
        if (i == run->last) return;
    }
}

/* Looks for one run that is good enough. */
static void compact_plan_slides(compact_plan *plan, size_t goal, size_t budget)
{
    compact_run run = {.free = 0};
    plan->joined_bytes = 0;
    if (!compact_find_run(plan, goal, &run) || run.cost > budget) return;
    compact_plan_run(plan, &run);
    plan->joined_bytes = run.free;
}

/* Bytes of the handles that lie wholly in [start, end). */
static size_t compact_whole(const compact_plan *plan, uintptr_t start, uintptr_t end)
{
    size_t bytes = 0;
    for (size_t i = compact_find_handle(plan, start); i < plan->handles_count; i++) {
        const compact_handle *handle = &plan->handles[i];
        if (handle->start + handle->bytes > end) break;
        if (handle->start >= start) bytes += handle->bytes;
    }
    return bytes;
}

/* What a run would join beyond what is joined in it now: whole handles, or in a raw segment one piece. */
static size_t compact_gain(const compact_plan *plan, const compact_run *run)
{
    const uintptr_t end = plan->items[run->last].start + plan->items[run->last].bytes;
    size_t now = 0, largest = 0;
    for (uint32_t i = run->first;; i = plan->items[i].behind) {
        const compact_item *item = &plan->items[i];
        if (item->kind == COMPACT_HOLE) {
            now += compact_whole(plan, item->start, item->start + item->bytes);
            if (item->bytes > largest) largest = item->bytes;
        }
        if (i == run->last) break;
    }
    if (!plan->pool->is_virtual) return run->free - largest;
    const size_t then = compact_whole(plan, end - run->free, end);
    return then > now ? then - now : 0;
}

static void compact_slide_if_worth_it(compact_plan *plan, const compact_run *run, size_t budget)
{
    if (!run->cost || plan->moved_bytes + run->cost > budget) return;
    const size_t gain = compact_gain(plan, run);
    if (gain < run->cost / COMPACT_SLIDE_PRICE + 1) return;
    compact_plan_run(plan, run);
    if (plan->pool->is_virtual) plan->joined_bytes += gain;
}

/* The last that is done when as much as possible is to be joined: between blocks that stay, all that is worth it slides. */
static void compact_slide_all(compact_plan *plan, size_t budget)
{
    for (uint32_t head = 0; head < plan->items_count; head++) {
        if (plan->items[head].is_gone || plan->items[head].before != COMPACT_NONE) continue;
        compact_run run = {.free = 0};
        size_t behind = 0; /* bytes behind the last hole */
        for (uint32_t i = head; i != COMPACT_NONE; i = plan->items[i].behind) {
            const compact_item *item = &plan->items[i];
            if (item->kind == COMPACT_FIXED) {
                compact_slide_if_worth_it(plan, &run, budget);
                run = (compact_run){.free = 0};
            } else if (item->kind == COMPACT_HOLE && item->bytes) {
                if (run.free)
                    run.cost += behind;
                else
                    run.first = i;
                run.free += item->bytes;
                run.last = i;
                behind = 0;
            } else {
                behind += item->bytes;
            }
        }
        compact_slide_if_worth_it(plan, &run, budget);
    }
}

/* --- planning --- */

/* What threads keep, and what streams have freed, lies in the way. Free memory becomes the lane's own, which waits for the others; what
 * it cannot wait for is left out, and so are blocks that captured work uses. */
static void compact_prepare(lochi_pool *pool, pool_lane *lane)
{
    lochi_pool_stop(pool);
    lochi_pool_flush_all(pool, lochi_pool_flush);
    lochi_pool_go(pool);
    const loch_error saved = lochi_error_save();
    for (pool_lane *other = pool->lanes; other; other = other->next) {
        if (other->unmarked_bytes && !other->is_closed) lochi_pool_mark(pool, other); /* blocks wait for it */
        lochi_pool_poll(pool, other);
        other->is_out_of_reach = other->capture || lochi_pool_is_under_capture(pool, other);
    }
    lochi_pool_collect(pool);
    for (pool_lane *other = pool->lanes; other; other = other->next)
        lochi_pool_slab_trim(pool, other);
    lochi_pool_join_lanes(pool);
    (void)!lochi_pool_mend_all(pool, lane); /* or they stay */
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        if (lochi_pool_state(block) != POOL_FREE || block->lane == lane || block->lane->capture || block->is_piece)
            continue;
        const bool has_passed = lochi_pool_has_passed(block->lane, block->epoch);
        if (lochi_pool_wait_on_device(pool, lane, block->lane, block->epoch) != LOCH_OK) continue;
        pool->crossed_bytes += block->bytes;
        block = lochi_pool_adopt(pool, block, lane, has_passed ? 0 : lane->epoch);
    }
    lochi_error_restore(&saved);
}

/* The largest hole. */
static size_t compact_largest(const compact_plan *plan)
{
    size_t largest = 0;
    for (size_t i = 0; i < plan->holes_count; i++)
        if (plan->items[plan->holes[i]].bytes > largest) largest = plan->items[plan->holes[i]].bytes;
    return largest;
}

/* Plans so that `bytes` are in one piece, if that can be with no more than the budget; joins less than `bytes` if not. */
typedef void compact_way(compact_plan *plan, size_t bytes, size_t budget);

static void compact_by_handles(compact_plan *plan, size_t bytes, size_t budget)
{
    const size_t cell = plan->pool->cell_bytes, goal = (bytes + cell - 1) / cell * cell;
    compact_plan_handles(plan, goal, budget);
    if (plan->joined_bytes < goal) plan->joined_bytes = 0;
}

/* Handles are large in a large pool: for less than one, a part of it is enough. */
static void compact_by_window(compact_plan *plan, size_t bytes, size_t budget)
{
    size_t largest = 0;
    for (size_t i = 0; i < plan->handles_count; i++)
        if (plan->handles[i].bytes > largest) largest = plan->handles[i].bytes;
    plan->joined_bytes = 0;
    if (!plan->pool->is_virtual || bytes <= largest) compact_plan_window(plan, bytes, budget);
}

/* Tries the ways in turn, on plans of their own: the one that moves the least stays. */
static loch_status compact_try_ways(compact_plan *plan, size_t bytes, size_t budget, bool is_in_handles)
{
    static compact_way *const ways[] = {compact_by_window, compact_by_handles, compact_plan_slides};
    bool is_found = false;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && budget; i++) {
        if (is_in_handles && ways[i] != compact_by_handles &&
            !(plan->pool->is_virtual && ways[i] == compact_plan_slides))
            continue;
        compact_plan other = {.pool = plan->pool, .lane = plan->lane};
        const loch_status status = compact_look(&other);
        if (status == LOCH_OK) ways[i](&other, bytes, budget);
        const bool is_better = status == LOCH_OK && other.joined_bytes >= bytes;
        compact_end(is_better ? plan : &other);
        if (status != LOCH_OK) return status;
        if (!is_better) continue;
        *plan = other;
        is_found = true;
        budget = other.moved_bytes ? other.moved_bytes - 1 : 0;
    }
    if (is_found) return LOCH_OK;
    return LOCH_FAIL(FRAGMENTED, "no moves of blocks that may move free %zu bytes in one piece", bytes);
}

static loch_status compact_make_piece(compact_plan *plan, size_t bytes, size_t budget, bool is_in_handles)
{
    LOCH_TRY_RETURN(compact_look(plan));
    const size_t largest = compact_largest(plan);
    if (!is_in_handles && largest >= bytes) { /* is there: nothing has to move */
        if (plan->joined_bytes < largest) plan->joined_bytes = largest;
        return LOCH_OK;
    }
    plan->joined_bytes = 0;
    if (bytes <= plan->pool->reserved) return compact_try_ways(plan, bytes, budget, is_in_handles);
    return LOCH_FAIL(FRAGMENTED, "%zu bytes are more than the pool holds: no moves join them", bytes);
}

static loch_status compact_make(compact_plan *plan, pool_goal goal, size_t bytes, size_t budget)
{
    if (goal != POOL_GOAL_ALL) return compact_make_piece(plan, bytes, budget, goal == POOL_GOAL_HANDLES);
    LOCH_TRY_RETURN(compact_look(plan));
    compact_plan_handles(plan, SIZE_MAX, budget);
    compact_slide_all(plan, budget);
    return LOCH_OK;
}

/* --- carrying out --- */

/* The free block that begins behind an item. */
static pool_block *compact_find_free(const compact_plan *plan, uint32_t before, uintptr_t start)
{
    if (before != COMPACT_NONE) return plan->items[before].block->behind;
    const pool_cell *cell = lochi_pool_find_cell(plan->pool, start); /* the first of its region */
    return plan->pool->is_virtual ? plan->pool->first : cell->handle->first;
}

/* Cuts a target out of its hole. It is marked as used, so that nothing merges with it. */
static loch_status compact_cut(compact_plan *plan, const compact_move *move)
{
    compact_item *target = &plan->items[move->to];
    pool_block *block = compact_find_free(plan, move->before, target->start);
    if (!block || block->start != target->start || block->bytes < move->bytes || !compact_is_hole(plan, block))
        return LOCH_FAIL(BUSY, "the memory at %p is not free any more", (void *)target->start);
    LOCH_TRY_RETURN(lochi_pool_cut(plan->pool, block, target->start, move->bytes));
    lochi_pool_set_state(block, POOL_SPECIAL);
    target->block = block; /* the record stays with the front part */
    return LOCH_OK;
}

/* Carries out the moves of one batch, from `first` on. What was cut and is not needed becomes free again. */
static loch_status compact_run_batch(compact_plan *plan, size_t first, size_t end)
{
    loch_status status = LOCH_OK;
    size_t cut = first, done = first;
    while (cut < end && status == LOCH_OK) {
        status = compact_cut(plan, &plan->moves[cut]);
        cut += status == LOCH_OK;
    }
    while (done < cut && status == LOCH_OK) {
        const compact_move *move = &plan->moves[done++];
        pool_block *target = plan->items[move->to].block;
        status = lochi_pool_move(plan->pool, plan->items[move->from].block, target, plan->lane);
        if (status != LOCH_OK) break;
        plan->moves_count++;
        plan->moved_bytes += move->bytes;
    }
    for (; status != LOCH_OK && done < cut; done++) {
        pool_block *target = plan->items[plan->moves[done].to].block;
        lochi_pool_make_free(plan->pool, target, target->epoch);
    }
    return status;
}

static loch_status compact_run_slide(compact_plan *plan, const compact_move *move)
{
    LOCH_TRY_RETURN(lochi_pool_slide(plan->pool, plan->items[move->from].block, plan->lane));
    plan->moves_count++;
    plan->moved_bytes += move->bytes;
    return LOCH_OK;
}

static loch_status compact_carry_out(compact_plan *plan)
{
    const size_t count = plan->moves_count;
    loch_status status = LOCH_OK;
    plan->moves_count = plan->moved_bytes = 0;
    for (size_t first = 0, end; first < count && status == LOCH_OK; first = end) {
        for (end = first + 1; end < count && plan->moves[end].batch == plan->moves[first].batch;)
            end++;
        status = plan->moves[first].is_slide ? compact_run_slide(plan, &plan->moves[first])
                                             : compact_run_batch(plan, first, end);
    }
    if (count) lochi_pool_mark(plan->pool, plan->lane); /* can be waited for even if the stream is captured next */
    return status;
}

loch_status lochi_pool_compact(lochi_pool *pool, pool_lane *lane, pool_goal goal, size_t bytes)
{
    compact_plan plan = {.pool = pool, .lane = lane};
    compact_prepare(pool, lane);
    loch_status status = compact_make(&plan, goal, bytes, SIZE_MAX);
    if (status == LOCH_OK && plan.moves_count && pool->moving_forbidden)
        status = LOCH_FAIL(MOVING_FORBIDDEN, "%zu bytes fit after a compaction, which is forbidden now", bytes);
    if (status == LOCH_OK) status = compact_carry_out(&plan);
    compact_end(&plan);
    return status;
}

/* --- in public --- */

static loch_status compact_read(loch_allocator *allocator, const loch_compact_options *given,
                                loch_compact_options *options, lochi_pool **pool)
{
    *pool = lochi_pool_of(allocator);
    if (!*pool) return LOCH_FAIL(INVALID, "only a pool is compacted");
    *options = (loch_compact_options){.size = sizeof *options};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of options for compaction", given, options, sizeof *options));
    if (!options->budget_bytes) options->budget_bytes = SIZE_MAX;
    if (!options->stream) options->stream = (*pool)->default_stream;
    return lochi_stream_check(options->stream, (*pool)->device);
}

/* The lane that compacts. That of a capture cannot: free memory that it was given would be the capture's. */
static pool_lane *compact_choose_lane(lochi_pool *pool, loch_stream *stream, loch_status *status)
{
    pool_lane *lane = lochi_pool_lane(pool, stream, status);
    if (lane && lane->capture) *status = LOCH_FAIL(BUSY, "a stream that is captured cannot compact a pool");
    if (lane && pool->is_asleep)
        *status = LOCH_FAIL(BUSY, "the pool \"%s\" sleeps: wake it first", loch_allocator_get_name(pool->allocator));
    return lane;
}

static loch_status compact_make_public(compact_plan *plan, const loch_compact_options *options)
{
    const pool_goal goal = options->contiguous_bytes ? POOL_GOAL_PIECE : POOL_GOAL_ALL;
    return compact_make(plan, goal, options->contiguous_bytes, options->budget_bytes);
}

static void compact_tell(const compact_plan *plan, loch_compact_report *report)
{
    if (!report) return;
    const size_t size = report->size < sizeof *report ? report->size : sizeof *report;
    const loch_compact_report full = {report->size, plan->moves_count, plan->moved_bytes, plan->joined_bytes};
    memcpy(report, &full, size);
}

loch_status loch_pool_compact(loch_allocator *allocator, const loch_compact_options *given, loch_compact_report *report)
{
    lochi_pool *pool;
    loch_compact_options options;
    LOCH_TRY_RETURN(compact_read(allocator, given, &options, &pool));
    compact_plan plan = {.pool = pool};
    loch_status status;
    lochi_lock_take(&pool->lock);
    plan.lane = compact_choose_lane(pool, options.stream, &status);
    if (status == LOCH_OK && pool->moving_forbidden)
        status = LOCH_FAIL(MOVING_FORBIDDEN, "moving is forbidden in the pool \"%s\" now",
                           loch_allocator_get_name(pool->allocator));
    if (status == LOCH_OK) {
        compact_prepare(pool, plan.lane);
        status = compact_make_public(&plan, &options);
        if (status == LOCH_OK) status = compact_carry_out(&plan);
        if (status != LOCH_OK) plan.joined_bytes = 0; /* what was planned did not come */
    }
    lochi_lock_drop(&pool->lock);
    compact_tell(&plan, report);
    compact_end(&plan);
    return status;
}

loch_status loch_pool_plan_compact(loch_allocator *allocator, const loch_compact_options *given,
                                   loch_move_function *visitor, void *user, loch_compact_report *report)
{
    lochi_pool *pool;
    loch_compact_options options;
    LOCH_TRY_RETURN(compact_read(allocator, given, &options, &pool));
    compact_plan plan = {.pool = pool};
    loch_status status;
    lochi_lock_take(&pool->lock);
    plan.lane = compact_choose_lane(pool, options.stream, &status);
    if (status == LOCH_OK) {
        compact_prepare(pool, plan.lane);
        status = compact_make_public(&plan, &options);
    }
    for (size_t i = 0; i < plan.moves_count && status == LOCH_OK && visitor; i++) {
        const compact_move *planned = &plan.moves[i];
        const compact_item *item = &plan.items[planned->from];
        const pool_block *block = item->kind == COMPACT_TARGET ? plan.items[item->origin].block : item->block;
        const loch_move move = {(void *)planned->source, (void *)planned->target, block->requested, block->tag,
                                block->owner->buffer};
        visitor(pool->allocator, &move, user);
    }
    lochi_lock_drop(&pool->lock);
    compact_tell(&plan, report);
    compact_end(&plan);
    return status;
}

loch_status loch_pool_set_move_hook(loch_allocator *allocator, loch_move_function *hook, void *user)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    if (!pool) return LOCH_FAIL(INVALID, "only pools move memory");
    lochi_lock_take(&pool->lock);
    pool->move_hook = hook;
    pool->move_hook_user = user;
    lochi_lock_drop(&pool->lock);
    return LOCH_OK;
}

/* Adds to how often moving is forbidden. */
static loch_status compact_forbid(loch_allocator *allocator, bool is_more)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    if (!pool) return LOCH_FAIL(INVALID, "only pools move memory");
    loch_status status = LOCH_OK;
    lochi_lock_take(&pool->lock);
    if (is_more)
        pool->moving_forbidden++;
    else if (pool->moving_forbidden)
        pool->moving_forbidden--;
    else
        status =
            LOCH_FAIL(INVALID, "moving is not forbidden in the pool \"%s\"", loch_allocator_get_name(pool->allocator));
    lochi_lock_drop(&pool->lock);
    return status;
}

loch_status loch_pool_forbid_moving(loch_allocator *pool)
{
    return compact_forbid(pool, true);
}

loch_status loch_pool_allow_moving(loch_allocator *pool)
{
    return compact_forbid(pool, false);
}
