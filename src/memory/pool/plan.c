/* SPDX-License-Identifier: MIT */
/* The list of a plan: items by address, the holes among them, and the contents of each handle. A move puts a target
 * at the start of a hole. The place that it leaves becomes a hole after its bytes were counted out of its handle. */
#include "memory/pool/plan.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/heap.h"
#include "memory/pool/move.h"
#include <stdlib.h>

#define PLAN_FEW 6 /* holes that are compared */

/* --- looking --- */

void lochi_plan_end(pool_plan *plan)
{
    lochi_free(plan->items);
    lochi_free(plan->lives);
    lochi_free(plan->holes);
    lochi_free(plan->moves);
    lochi_free(plan->handles);
    lochi_free(plan->order);
}

bool lochi_plan_is_hole(const pool_plan *plan, const pool_block *block)
{
    return lochi_pool_state(block) == POOL_FREE && block->lane == plan->lane && !block->is_piece;
}

static int plan_order_handles(const void *left, const void *right)
{
    const plan_handle *a = left, *b = right;
    return a->start < b->start ? -1 : a->start > b->start;
}

/* Allocates the arrays: for all items, and a target for each item that may move. */
static loch_status plan_begin(pool_plan *plan)
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
        lochi_alloc_array(2 * lives + 1, sizeof *plan->moves); /* one move to a target and one slide for each */
    plan->handles = lochi_alloc_array(pool->handles_count + 1, sizeof *plan->handles);
    plan->order = lochi_alloc_array(pool->handles_count + 1, sizeof *plan->order);
    if (!plan->items || !plan->lives || !plan->holes || !plan->moves || !plan->handles || !plan->order)
        return LOCH_FAIL(HOST_MEMORY, "no host memory to plan a compaction");
    for (const pool_handle *handle = pool->handles; handle; handle = handle->next)
        plan->handles[plan->handles_count++] = (plan_handle){.start = handle->at, .bytes = handle->bytes};
    qsort(plan->handles, plan->handles_count, sizeof *plan->handles, plan_order_handles);
    return LOCH_OK;
}

/* Finds the first handle that ends behind an address. */
size_t lochi_plan_find_handle(const pool_plan *plan, uintptr_t address)
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

/* Counts bytes into handles (1) or out of them (-1), and updates joined_bytes, the bytes of empty handles. */
void lochi_plan_count(pool_plan *plan, uintptr_t start, size_t bytes, bool is_settled, int sign)
{
    for (size_t i = lochi_plan_find_handle(plan, start);
         i < plan->handles_count && plan->handles[i].start < start + bytes; i++) {
        plan_handle *handle = &plan->handles[i];
        const uintptr_t handle_end = handle->start + handle->bytes, end = start + bytes;
        const size_t part = (end < handle_end ? end : handle_end) - (start > handle->start ? start : handle->start);
        const bool was_empty = !handle->used;
        handle->used = sign > 0 ? handle->used + part : handle->used - part;
        if (is_settled) handle->settled = sign > 0 ? handle->settled + part : handle->settled - part;
        if (was_empty) plan->joined_bytes -= handle->bytes;
        if (!handle->used) plan->joined_bytes += handle->bytes;
    }
}

static void plan_enter_live(pool_plan *plan, uint32_t item)
{
    const plan_item *live = &plan->items[item];
    for (size_t i = lochi_plan_find_handle(plan, live->start);
         i < plan->handles_count && plan->handles[i].start < live->start + live->bytes; i++)
        if (!plan->handles[i].count++) plan->handles[i].first = (uint32_t)plan->lives_count;
    plan->lives[plan->lives_count++] = item;
}

static void plan_enter(pool_plan *plan, pool_block *block)
{
    const uint32_t item = (uint32_t)plan->items_count++;
    const bool goes_on = item && plan->items[item - 1].block->behind == block;
    const pool_state state = lochi_pool_state(block);
    const bool is_hole = lochi_plan_is_hole(plan, block), is_live = lochi_pool_is_movable(plan->pool, block);
    plan->items[item] = (plan_item){.block = block,
                                    .start = block->start,
                                    .bytes = block->bytes,
                                    .before = goes_on ? item - 1 : PLAN_NONE,
                                    .behind = PLAN_NONE,
                                    .kind = is_hole   ? PLAN_HOLE
                                            : is_live ? PLAN_LIVE
                                                      : PLAN_FIXED};
    if (goes_on) plan->items[item - 1].behind = item;
    if (is_hole) plan->holes[plan->holes_count++] = item;
    if (is_live) plan_enter_live(plan, item);
    const bool has_memory = state != POOL_BARE && state != POOL_FADING;
    if (!is_hole && has_memory) lochi_plan_count(plan, block->start, block->bytes, !is_live, 1);
}

loch_status lochi_plan_look(pool_plan *plan)
{
    lochi_lock_assert_held(&plan->pool->lock);
    LOCH_TRY_RETURN(plan_begin(plan));
    plan->joined_bytes = plan->pool->loose_bytes;
    for (size_t i = 0; i < plan->handles_count; i++)
        plan->joined_bytes += plan->handles[i].bytes; /* empty until an item is entered */
    for (pool_block *block = NULL; (block = lochi_pool_next_block(plan->pool, block));)
        plan_enter(plan, block);
    return LOCH_OK;
}

/* --- moves of the plan --- */

/* Returns the cost of placing a block somewhere: empty handles would be used, and handles that could be emptied no
 * longer could. */
static size_t plan_price(const pool_plan *plan, uintptr_t start, size_t bytes)
{
    size_t price = 0;
    for (size_t i = lochi_plan_find_handle(plan, start);
         i < plan->handles_count && plan->handles[i].start < start + bytes; i++) {
        const plan_handle *handle = &plan->handles[i];
        if (!handle->used)
            price += 2 * handle->bytes;
        else if (!handle->settled)
            price += handle->bytes - handle->used;
    }
    return price;
}

/* Returns the cheapest of a few holes. */
static uint32_t plan_cheapest(const pool_plan *plan, const uint32_t *holes, size_t count, size_t bytes)
{
    uint32_t best = PLAN_NONE;
    size_t least = 0;
    for (size_t i = 0; i < count; i++) {
        const size_t price = plan_price(plan, plan->items[holes[i]].start, bytes);
        if (best != PLAN_NONE && price >= least) continue;
        best = holes[i];
        least = price;
    }
    return best;
}

/* Finds a hole for `bytes` outside of [start, end): the cheapest of the few smallest; of equal ones the highest,
 * because handles are emptied from below. Removes used-up holes from the list. */
uint32_t lochi_plan_find_hole(pool_plan *plan, size_t bytes, uintptr_t start, uintptr_t end)
{
    uint32_t few[PLAN_FEW];
    size_t count = 0, kept = 0;
    for (size_t i = 0; i < plan->holes_count; i++) {
        const uint32_t index = plan->holes[i];
        const plan_item *hole = &plan->items[index];
        if (hole->is_gone) continue;
        plan->holes[kept++] = index;
        if (hole->bytes < bytes || (hole->start < end && hole->start + bytes > start)) continue;
        size_t at = count < PLAN_FEW ? count++ : PLAN_FEW;
        for (; at > 0; at--) {
            const plan_item *other = &plan->items[few[at - 1]];
            if (other->bytes < hole->bytes || (other->bytes == hole->bytes && other->start > hole->start)) break;
            if (at < PLAN_FEW) few[at] = few[at - 1];
        }
        if (at < PLAN_FEW) few[at] = index;
    }
    plan->holes_count = kept;
    return plan_cheapest(plan, few, count, bytes);
}

static void plan_link(pool_plan *plan, uint32_t before, uint32_t behind)
{
    if (before != PLAN_NONE) plan->items[before].behind = behind;
    if (behind != PLAN_NONE) plan->items[behind].before = before;
}

/* Returns the item before a hole. Skips holes that are used up, because they have no block. */
static uint32_t plan_before(const pool_plan *plan, uint32_t hole)
{
    uint32_t before = plan->items[hole].before;
    while (before != PLAN_NONE && plan->items[before].kind == PLAN_HOLE)
        before = plan->items[before].before;
    return before;
}

/* Plans to put an item at the start of a hole. The place that it leaves is not a hole yet. */
void lochi_plan_place(pool_plan *plan, uint32_t from, uint32_t into)
{
    const uint32_t stands_before = plan_before(plan, into);
    const uint32_t to = (uint32_t)plan->items_count++;
    plan_item *hole = &plan->items[into];
    const size_t bytes = plan->items[from].bytes;
    plan->items[to] = (plan_item){.start = hole->start,
                                  .bytes = bytes,
                                  .before = hole->before,
                                  .behind = into,
                                  .kind = PLAN_TARGET,
                                  .origin = from};
    const uintptr_t target = hole->start;
    plan_link(plan, hole->before, to);
    hole->before = to;
    hole->start += bytes;
    hole->bytes -= bytes;
    plan->moves[plan->moves_count++] = (plan_move){.from = from,
                                                   .to = to,
                                                   .before = stands_before,
                                                   .batch = plan->batches,
                                                   .bytes = bytes,
                                                   .source = plan->items[from].start,
                                                   .target = target};
    plan->moved_bytes += bytes;
    lochi_plan_count(plan, plan->items[to].start, bytes, true, 1);
}

/* Takes back the last move. Its item is where it was. */
void lochi_plan_unplace(pool_plan *plan)
{
    const plan_move *move = &plan->moves[--plan->moves_count];
    const plan_item *target = &plan->items[move->to];
    plan_item *hole = &plan->items[target->behind];
    lochi_plan_count(plan, target->start, move->bytes, true, -1);
    hole->start -= move->bytes;
    hole->bytes += move->bytes;
    plan_link(plan, target->before, target->behind);
    plan->moved_bytes -= move->bytes;
    plan->items_count--;
}

/* Merges an item with the hole behind it. */
static void plan_merge(pool_plan *plan, uint32_t item)
{
    const uint32_t behind = plan->items[item].behind;
    if (behind == PLAN_NONE || plan->items[behind].kind != PLAN_HOLE) return;
    plan->items[item].bytes += plan->items[behind].bytes;
    plan->items[behind].is_gone = true;
    plan->items[item].behind = plan->items[behind].behind;
    plan_link(plan, item, plan->items[behind].behind);
}

/* Turns the place of a moved item into a hole. It must have been counted out. */
void lochi_plan_leave(pool_plan *plan, uint32_t from)
{
    plan_item *item = &plan->items[from];
    item->kind = PLAN_HOLE;
    plan->holes[plan->holes_count++] = from;
    plan_merge(plan, from);
    const uint32_t before = item->before;
    if (before != PLAN_NONE && plan->items[before].kind == PLAN_HOLE) plan_merge(plan, before);
}
