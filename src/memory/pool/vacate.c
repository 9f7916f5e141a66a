/* SPDX-License-Identifier: MIT */
/* Plans that empty handles: those with the least live memory for their size first. Blocks move into holes of other
 * handles, or, if nothing fits there, into handles that were emptied before, where they lie side by side.
 *
 *   handle:    |  A A . . |  . B . . |  C C C .  |        to empty the second, B moves behind C
 *
 * Also plans windows: runs of neighbours in one handle or raw segment that are long enough and contain the fewest
 * bytes. */
#include "memory/pool/vacate.h"
#include "memory/pool/plan.h"
#include <stdlib.h>

#define VACATE_WINDOWS 32 /* windows that are tried */
#define VACATE_PASSES 6   /* passes over the handles for each price */

/* --- vacating handles --- */

static bool vacate_is_there(const pool_plan *plan, uint32_t live)
{
    return plan->items[plan->lives[live]].kind == PLAN_LIVE;
}

/* Returns the bytes that have to move out of a handle. */
static size_t vacate_cost(const pool_plan *plan, const plan_handle *handle)
{
    size_t bytes = 0;
    for (uint32_t i = handle->first; i < handle->first + handle->count; i++)
        if (vacate_is_there(plan, i)) bytes += plan->items[plan->lives[i]].bytes;
    return bytes;
}

/* Returns the only item that has to move out of a handle; NULL if there are several. */
static plan_item *vacate_alone(const pool_plan *plan, const plan_handle *handle)
{
    plan_item *alone = NULL;
    for (uint32_t i = handle->first; i < handle->first + handle->count; i++) {
        if (!vacate_is_there(plan, i)) continue;
        if (alone) return NULL;
        alone = &plan->items[plan->lives[i]];
    }
    return alone;
}

/* Plans a new place for every item in a handle. Returns false if an item fits nowhere. */
static bool vacate_place_all(pool_plan *plan, const plan_handle *handle)
{
    for (uint32_t i = handle->first; i < handle->first + handle->count; i++) {
        if (!vacate_is_there(plan, i)) continue;
        const uint32_t from = plan->lives[i];
        const uint32_t into =
            lochi_plan_find_hole(plan, plan->items[from].bytes, handle->start, handle->start + handle->bytes);
        if (into == PLAN_NONE) return false;
        lochi_plan_place(plan, from, into);
    }
    return true;
}

/* Counts the old places of the moves from `first` on in (1) or out (-1). */
static void vacate_count_left(pool_plan *plan, size_t first, int sign)
{
    for (size_t i = first; i < plan->moves_count; i++)
        lochi_plan_count(plan, plan->items[plan->moves[i].from].start, plan->moves[i].bytes, false, sign);
}

/* Plans to empty a handle if that joins at least 1/`price` of the moved bytes. Otherwise plans nothing and returns
 * false. */
static bool vacate_one(pool_plan *plan, const plan_handle *handle, size_t price, size_t budget)
{
    if (!handle->used || handle->settled || plan->moved_bytes + vacate_cost(plan, handle) > budget) return false;
    plan_item *alone = vacate_alone(plan, handle); /* a long block lies in many handles: try it once in a pass */
    if (alone && alone->tried == plan->pass) return false;
    const size_t moves = plan->moves_count, moved = plan->moved_bytes, joined = plan->joined_bytes;
    const bool is_placed = vacate_place_all(plan, handle);
    vacate_count_left(plan, moves, -1);
    const bool is_worth_it =
        plan->joined_bytes > joined && plan->joined_bytes - joined >= (plan->moved_bytes - moved) / price;
    if (is_placed && is_worth_it) {
        for (size_t i = moves; i < plan->moves_count; i++)
            lochi_plan_leave(plan, plan->moves[i].from);
        plan->batches++;
        return true;
    }
    vacate_count_left(plan, moves, 1);
    while (plan->moves_count > moves)
        lochi_plan_unplace(plan);
    if (alone) alone->tried = plan->pass;
    return false;
}

/* Empties a handle, then its neighbours while they are worth it, because neighbours share blocks and holes. */
static bool vacate_from(pool_plan *plan, size_t at, size_t goal, size_t price, size_t budget)
{
    if (!vacate_one(plan, &plan->handles[at], price, budget)) return false;
    for (size_t i = at + 1; i < plan->handles_count && plan->joined_bytes < goal; i++)
        if (!vacate_one(plan, &plan->handles[i], price, budget)) break;
    for (size_t i = at; i-- > 0 && plan->joined_bytes < goal;)
        if (!vacate_one(plan, &plan->handles[i], price, budget)) break;
    return true;
}

static int vacate_order_density(const void *left, const void *right)
{
    const plan_candidate *a = left, *b = right;
    if (a->density != b->density) return a->density < b->density ? -1 : 1;
    return a->handle < b->handle ? -1 : a->handle > b->handle;
}

/* Sorts the handles that could be emptied, the least dense first. Returns their number. */
static size_t vacate_sort(pool_plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->handles_count; i++) {
        const plan_handle *handle = &plan->handles[i];
        if (!handle->used || handle->settled) continue;
        plan->order[count++] = (plan_candidate){(float)handle->used / (float)handle->bytes, (uint32_t)i};
    }
    qsort(plan->order, count, sizeof *plan->order, vacate_order_density);
    return count;
}

/* Empties cheap handles first: those that free two bytes for each byte moved, then one for eight, then any. */
void lochi_plan_vacate(pool_plan *plan, size_t goal, size_t budget)
{
    static const size_t prices[] = {2, 8, SIZE_MAX};
    for (size_t p = 0; p < sizeof prices / sizeof *prices; p++) {
        bool goes_on = true;
        for (int pass = 0; pass < VACATE_PASSES && goes_on; pass++) {
            goes_on = false;
            plan->pass++;
            const size_t count = vacate_sort(plan);
            for (size_t i = 0; i < count && plan->joined_bytes < goal; i++)
                goes_on |= vacate_from(plan, plan->order[i].handle, goal, prices[p], budget);
        }
        if (plan->joined_bytes >= goal) return;
    }
}

/* --- windows --- */

typedef struct vacate_window {
    uint32_t first, last;
    size_t bytes, cost;
} vacate_window;

/* Finds the cheapest window of at least `goal` bytes that costs more than `above`, or costs the same and starts
 * behind it. */
static bool vacate_find_window(const pool_plan *plan, size_t goal, const vacate_window *above, vacate_window *out)
{
    bool is_found = false;
    vacate_window window = {.bytes = 0};
    for (uint32_t i = 0; i < plan->items_count; i++) {
        const plan_item *item = &plan->items[i];
        if (item->kind == PLAN_FIXED || !window.bytes || item->before == PLAN_NONE)
            window = (vacate_window){.first = i};
        if (item->kind == PLAN_FIXED) continue;
        window.last = i;
        window.bytes += item->bytes;
        if (item->kind == PLAN_LIVE) window.cost += item->bytes;
        while (window.first != i && window.bytes - plan->items[window.first].bytes >= goal) {
            const plan_item *first = &plan->items[window.first++];
            window.bytes -= first->bytes;
            if (first->kind == PLAN_LIVE) window.cost -= first->bytes;
        }
        const bool is_next =
            window.cost > above->cost || (window.cost == above->cost && (!above->bytes || window.first > above->first));
        if (window.bytes < goal || !is_next || (is_found && window.cost >= out->cost)) continue;
        *out = window;
        is_found = true;
    }
    return is_found;
}

/* Plans to empty a window. Returns false and plans nothing if one of its items fits nowhere else. */
static bool vacate_empty_window(pool_plan *plan, const vacate_window *window)
{
    const uintptr_t start = plan->items[window->first].start, end = start + window->bytes;
    bool is_placed = true;
    for (uint32_t i = window->first; i <= window->last && is_placed; i++) {
        if (plan->items[i].kind != PLAN_LIVE) continue;
        const uint32_t into = lochi_plan_find_hole(plan, plan->items[i].bytes, start, end);
        is_placed = into != PLAN_NONE;
        if (is_placed) lochi_plan_place(plan, i, into);
    }
    while (!is_placed && plan->moves_count)
        lochi_plan_unplace(plan);
    return is_placed;
}

void lochi_plan_window(pool_plan *plan, size_t goal, size_t budget)
{
    vacate_window window = {.bytes = 0}, next;
    plan->joined_bytes = 0;
    for (size_t i = 0; i < VACATE_WINDOWS && vacate_find_window(plan, goal, &window, &next); i++) {
        if (next.cost > budget) return;
        if (vacate_empty_window(plan, &next)) {
            plan->joined_bytes = next.bytes;
            return;
        }
        window = next;
    }
}
