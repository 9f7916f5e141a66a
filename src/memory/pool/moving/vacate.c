/* SPDX-License-Identifier: MIT */
/* Plans that empty handles: those with the least live memory for their size first. Blocks move into holes of other
 * handles, or, if nothing fits there, into handles that were emptied before, where they lie side by side.
 *
 *   handle:    |  A A . . |  . B . . |  C C C .  |        to empty the second, B moves behind C
 *
 * Also plans windows: runs of neighbours in one handle or raw segment that are long enough and contain the fewest
 * bytes. */
#include "memory/pool/moving/vacate.h"
#include "memory/pool/moving/plan.h"

#define VACATE_WINDOWS 32     /* windows that are tried */
#define VACATE_FAILURES 600   /* handles in a row that cannot be emptied: the denser ones behind them are not tried */
#define VACATE_DENSITIES 1024 /* steps in which the density of handles is compared */

/* --- vacating handles --- */

static bool vacate_is_there(const pool_plan *plan, uint32_t live)
{
    return plan->items[plan->lives[live]].kind == PLAN_LIVE;
}

/* The items that have to move out of a handle. */
typedef struct vacate_load {
    plan_item *first, *last;
    size_t bytes;
} vacate_load;

static vacate_load vacate_look(const pool_plan *plan, const plan_handle *handle)
{
    vacate_load load = {.bytes = 0};
    for (uint32_t i = handle->first; i < handle->first + handle->count; i++) {
        if (!vacate_is_there(plan, i)) continue;
        load.last = &plan->items[plan->lives[i]];
        if (!load.first) load.first = load.last;
        load.bytes += load.last->bytes;
    }
    return load;
}

/* Returns the bytes of the handles that are empty without these items: their handle, and its neighbours into which the
 * first and the last item reach, unless other items lie there too. */
static size_t vacate_gain(const pool_plan *plan, size_t at, const vacate_load *load)
{
    if (!load->first || !load->last) return 0;
    const plan_handle *handle = &plan->handles[at], *low = &plan->handles[load->first->handle];
    const uintptr_t start = load->first->start, end = load->last->start + load->last->bytes;
    size_t gain = handle->bytes;
    if (low < handle) {
        gain += handle->start - low->start;
        if (low->used != low->start + low->bytes - start) gain -= low->bytes;
    }
    const plan_handle *high = &plan->handles[lochi_plan_last_handle(plan, at, end)];
    if (high > handle) {
        gain += high->start - handle->start - handle->bytes;
        if (high->used == end - high->start) gain += high->bytes;
    }
    return gain;
}

/* Plans a new place for every item in a handle. Returns false if an item fits nowhere, or if the new places use more
 * than `most` bytes of empty handles. */
static bool vacate_place_all(pool_plan *plan, const plan_handle *handle, size_t most)
{
    for (uint32_t i = handle->first; i < handle->first + handle->count; i++) {
        if (!vacate_is_there(plan, i)) continue;
        const uint32_t from = plan->lives[i];
        size_t filled;
        const uint32_t into =
            lochi_plan_find_hole(plan, plan->items[from].bytes, handle->start, handle->start + handle->bytes, &filled);
        if (into == PLAN_NONE || filled > most) return false;
        most -= filled;
        lochi_plan_place(plan, from, into);
    }
    return true;
}

/* Counts the old places of the moves from `first` on in (1) or out (-1). */
static void vacate_count_left(pool_plan *plan, size_t first, int sign)
{
    for (size_t i = first; i < plan->moves_count; i++)
        lochi_plan_count(plan, &plan->items[plan->moves[i].from], plan->moves[i].bytes, false, sign);
}

/* Plans new places for the items of a handle, which has to join `least` bytes. Otherwise plans nothing and returns
 * false. */
static bool vacate_try(pool_plan *plan, size_t at, size_t gain, size_t least)
{
    const size_t moves = plan->moves_count, joined = plan->joined_bytes;
    if (gain < least) return false;
    const bool is_placed = vacate_place_all(plan, &plan->handles[at], gain - least);
    if (is_placed) vacate_count_left(plan, moves, -1);
    if (is_placed && plan->joined_bytes >= joined + least) {
        for (size_t i = moves; i < plan->moves_count; i++)
            lochi_plan_leave(plan, plan->moves[i].from);
        plan->batches++;
        return true;
    }
    if (is_placed) vacate_count_left(plan, moves, 1); /* a new place is in a handle that was to become empty */
    while (plan->moves_count > moves)
        lochi_plan_unplace(plan);
    return false;
}

/* Plans to empty a handle if that joins at least 1/`price` of the moved bytes. Otherwise plans nothing and returns
 * false. */
static bool vacate_one(pool_plan *plan, size_t at, size_t price, size_t budget)
{
    const plan_handle *handle = &plan->handles[at];
    if (!handle->used || handle->settled) return false;
    const vacate_load load = vacate_look(plan, handle);
    if (plan->moved_bytes + load.bytes > budget) return false;
    plan_item *alone = load.first == load.last ? load.first : NULL;
    if (alone && alone->tried == plan->pass)
        return false; /* a long block lies in many handles: try it once in a pass */
    const size_t least = load.bytes / price;
    if (vacate_try(plan, at, vacate_gain(plan, at, &load), least ? least : 1)) return true;
    if (alone) alone->tried = plan->pass;
    return false;
}

/* Empties a handle, then its neighbours while they are worth it, because neighbours share blocks and holes. */
static bool vacate_from(pool_plan *plan, size_t at, size_t goal, size_t price, size_t budget)
{
    if (!vacate_one(plan, at, price, budget)) return false;
    for (size_t i = at + 1; i < plan->handles_count && plan->joined_bytes < goal; i++)
        if (!vacate_one(plan, i, price, budget)) break;
    for (size_t i = at; i-- > 0 && plan->joined_bytes < goal;)
        if (!vacate_one(plan, i, price, budget)) break;
    return true;
}

/* Tells whether one item fills a handle and the handle before it. */
static bool vacate_goes_on(const plan_handle *handle)
{
    const plan_handle *before = handle - 1;
    return handle->count == 1 && handle->used == handle->bytes && before->count == 1 && before->used == before->bytes &&
           handle->first == before->first;
}

/* Lists the handles that could be emptied, by address: one of those that a long item fills. Returns their number. */
static size_t vacate_list(pool_plan *plan)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->handles_count; i++) {
        const plan_handle *handle = &plan->handles[i];
        if (!handle->used || handle->settled || (i && vacate_goes_on(handle))) continue;
        plan->order[count++] = (uint32_t)i;
    }
    return count;
}

static size_t vacate_density(const plan_handle *handle)
{
    const size_t density = handle->used / (handle->bytes / VACATE_DENSITIES + 1);
    return density < VACATE_DENSITIES ? density : VACATE_DENSITIES - 1;
}

/* Sorts the listed handles by their density, equal ones by address, and drops those that cannot be emptied any more.
 * Returns their number. */
static size_t vacate_sort(pool_plan *plan, size_t count)
{
    size_t ends[VACATE_DENSITIES + 1] = {0}, kept = 0;
    uint32_t *listed = plan->order + plan->handles_count;
    for (size_t i = 0; i < count; i++) {
        const plan_handle *handle = &plan->handles[plan->order[i]];
        if (!handle->used || handle->settled) continue;
        listed[kept++] = plan->order[i];
        ends[vacate_density(handle) + 1]++;
    }
    for (size_t i = 1; i <= VACATE_DENSITIES; i++)
        ends[i] += ends[i - 1];
    for (size_t i = 0; i < kept; i++)
        plan->order[ends[vacate_density(&plan->handles[listed[i]])]++] = listed[i];
    return kept;
}

/* Empties cheap handles first: those that free two bytes for each byte moved, then one for eight, then any. */
void lochi_plan_vacate(pool_plan *plan, size_t goal, size_t budget)
{
    static const size_t prices[] = {2, 8, SIZE_MAX};
    size_t count = vacate_list(plan);
    for (size_t p = 0; p < sizeof prices / sizeof *prices && plan->joined_bytes < goal; p++) {
        plan->pass++;
        count = vacate_sort(plan, count);
        size_t failures = 0; /* in a row */
        for (size_t i = 0; i < count && plan->joined_bytes < goal && failures < VACATE_FAILURES; i++)
            failures = vacate_from(plan, plan->order[i], goal, prices[p], budget) ? 0 : failures + 1;
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
        size_t filled;
        const uint32_t into = lochi_plan_find_hole(plan, plan->items[i].bytes, start, end, &filled);
        is_placed = into != PLAN_NONE;
        if (is_placed) lochi_plan_place(plan, i, into);
    }
    while (!is_placed && plan->moves_count)
        lochi_plan_unplace(plan);
    return is_placed;
}

bool lochi_plan_window(pool_plan *plan, size_t goal, size_t budget)
{
    vacate_window window = {.bytes = 0}, next;
    for (size_t i = 0; i < VACATE_WINDOWS && vacate_find_window(plan, goal, &window, &next); i++) {
        if (next.cost > budget) return false;
        if (vacate_empty_window(plan, &next)) {
            plan->joined_bytes = next.bytes;
            return true;
        }
        window = next;
    }
    return false;
}
