/* SPDX-License-Identifier: MIT */
/* The list of a plan: items by address, the holes among them by size, and the contents of each handle. A move puts a
 * target at the start of a hole. The place that it leaves becomes a hole after its bytes were counted out of its
 * handle.
 *
 * An item knows its first handle, so that counting needs no search. The walk over the blocks meets the handles in the
 * order of their addresses, so that nothing is sorted. */
#include "memory/pool/moving/plan.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/moving/move.h"
#include <string.h>

#define PLAN_FEW 6     /* holes that are compared */
#define PLAN_LOOKED 32 /* holes of one bin that are looked at */

/* --- holes by size --- */

static unsigned plan_bin(size_t bytes)
{
    const unsigned top = 63 - (unsigned)__builtin_clzll(bytes | (1u << PLAN_BIN_BITS));
    return (top << PLAN_BIN_BITS) + (unsigned)(bytes >> (top - PLAN_BIN_BITS) & ((1u << PLAN_BIN_BITS) - 1));
}

/* Lists a hole, unless it is used up. */
static void plan_bin_add(pool_plan *plan, uint32_t index)
{
    plan_item *hole = &plan->items[index];
    if (!hole->bytes) return;
    const unsigned bin = plan_bin(hole->bytes);
    hole->next = plan->holes->first[bin];
    hole->prev = PLAN_NONE;
    hole->is_binned = true;
    if (hole->next != PLAN_NONE) plan->items[hole->next].prev = index;
    plan->holes->first[bin] = index;
    plan->holes->words[bin / 64] |= (uint64_t)1 << bin % 64;
}

static void plan_bin_remove(pool_plan *plan, uint32_t index)
{
    plan_item *hole = &plan->items[index];
    if (!hole->is_binned) return;
    const unsigned bin = plan_bin(hole->bytes);
    hole->is_binned = false;
    if (hole->next != PLAN_NONE) plan->items[hole->next].prev = hole->prev;
    if (hole->prev != PLAN_NONE)
        plan->items[hole->prev].next = hole->next;
    else if ((plan->holes->first[bin] = hole->next) == PLAN_NONE)
        plan->holes->words[bin / 64] &= ~((uint64_t)1 << bin % 64);
}

/* Returns the first bin from `bin` on that is not empty; PLAN_BINS for none. */
static unsigned plan_bin_above(const pool_plan *plan, unsigned bin)
{
    for (unsigned i = bin / 64; i < PLAN_BINS / 64; i++) {
        uint64_t word = plan->holes->words[i];
        if (i == bin / 64) word &= UINT64_MAX << bin % 64;
        if (word) return i * 64 + (unsigned)__builtin_ctzll(word);
    }
    return PLAN_BINS;
}

size_t lochi_plan_largest(const pool_plan *plan)
{
    size_t largest = 0;
    for (unsigned i = PLAN_BINS; i-- > 0 && !largest;)
        for (uint32_t at = plan->holes->first[i]; at != PLAN_NONE; at = plan->items[at].next)
            if (plan->items[at].bytes > largest) largest = plan->items[at].bytes;
    return largest;
}

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

/* Allocates the arrays: for all items, and a target for each item that may move. */
static loch_status plan_begin(pool_plan *plan)
{
    const lochi_pool *pool = plan->pool;
    size_t blocks = 0, lives = 0;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        blocks++;
        lives += block->owner != NULL;
    }
    plan->items = lochi_alloc_array(blocks + lives + 1, sizeof *plan->items);
    plan->lives = lochi_alloc_array(lives + 1, sizeof *plan->lives);
    plan->holes = lochi_zalloc(sizeof *plan->holes);
    plan->moves =
        lochi_alloc_array(2 * lives + 1, sizeof *plan->moves); /* one move to a target and one slide for each */
    plan->handles = lochi_alloc_array(pool->handles_count + 1, sizeof *plan->handles);
    plan->order = lochi_alloc_array(2 * pool->handles_count + 1, sizeof *plan->order);
    if (!plan->items || !plan->lives || !plan->holes || !plan->moves || !plan->handles || !plan->order)
        return LOCH_FAIL(HOST_MEMORY, "no host memory to plan a compaction");
    memset(plan->holes->first, 0xff, sizeof plan->holes->first); /* PLAN_NONE */
    return LOCH_OK;
}

/* Tells whether a handle and a range of addresses have bytes in common. */
static bool plan_meets(const plan_handle *handle, uintptr_t start, uintptr_t end)
{
    return handle->start < end && handle->start + handle->bytes > start;
}

/* Finds the handle of the byte before `end`, which is the handle `first` or one of its neighbours above. Most handles
 * have the size of the first. */
size_t lochi_plan_last_handle(const pool_plan *plan, size_t first, uintptr_t end)
{
    const plan_handle *handles = plan->handles;
    const size_t guess = first + (end - 1 - handles[first].start) / handles[first].bytes;
    if (guess < plan->handles_count && handles[guess].start < end && handles[guess].start + handles[guess].bytes >= end)
        return guess;
    while (handles[first].start + handles[first].bytes < end)
        first++;
    return first;
}

/* Counts bytes from the start of an item into handles (1) or out of them (-1), and updates joined_bytes, the bytes of
 * empty handles. */
void lochi_plan_count(pool_plan *plan, const plan_item *item, size_t bytes, bool is_settled, int sign)
{
    const uintptr_t start = item->start, end = start + bytes;
    for (size_t i = item->handle; i < plan->handles_count && plan_meets(&plan->handles[i], start, end); i++) {
        plan_handle *handle = &plan->handles[i];
        const uintptr_t handle_end = handle->start + handle->bytes;
        const size_t part = (end < handle_end ? end : handle_end) - (start > handle->start ? start : handle->start);
        const bool was_empty = !handle->used;
        handle->used = sign > 0 ? handle->used + part : handle->used - part;
        if (is_settled) handle->settled = sign > 0 ? handle->settled + part : handle->settled - part;
        if (was_empty) plan->joined_bytes -= handle->bytes;
        if (!handle->used) plan->joined_bytes += handle->bytes;
    }
}

/* Enters the handles of a block that were not met yet. */
static void plan_enter_handles(pool_plan *plan, const pool_block *block)
{
    const lochi_pool *pool = plan->pool;
    const uintptr_t end = block->start + (lochi_pool_state(block) == POOL_GROWABLE ? block->committed : block->bytes);
    uintptr_t at = block->start;
    if (plan->handles_count) {
        const plan_handle *last = &plan->handles[plan->handles_count - 1];
        if (plan_meets(last, at, end)) at = last->start + last->bytes;
    }
    while (at < end) {
        const pool_handle *handle = lochi_pool_find_handle(pool, at);
        at = lochi_pool_find_end(pool, handle, at);
        if (!handle || lochi_pool_is_asleep(handle) || plan->handles_count == pool->handles_count) continue;
        plan->handles[plan->handles_count++] = (plan_handle){.start = handle->at, .bytes = handle->bytes};
        plan->joined_bytes += handle->bytes; /* empty until an item is entered */
    }
}

static void plan_enter_live(pool_plan *plan, uint32_t item)
{
    const plan_item *live = &plan->items[item];
    for (size_t i = live->handle;
         i < plan->handles_count && plan_meets(&plan->handles[i], live->start, live->start + live->bytes); i++)
        if (!plan->handles[i].count++) plan->handles[i].first = (uint32_t)plan->lives_count;
    plan->lives[plan->lives_count++] = item;
}

/* Enters a block. `handle` is the last handle that was met before it. */
static void plan_enter(pool_plan *plan, pool_block *block, uint32_t handle)
{
    const uint32_t item = (uint32_t)plan->items_count++;
    const bool goes_on = item && plan->items[item - 1].block->behind == block;
    const bool is_hole = lochi_plan_is_hole(plan, block),
               is_live = !is_hole && lochi_pool_is_movable(plan->pool, block);
    while (handle < plan->handles_count &&
           !plan_meets(&plan->handles[handle], block->start, block->start + block->bytes))
        handle++;
    plan->items[item] = (plan_item){.block = block,
                                    .start = block->start,
                                    .bytes = block->bytes,
                                    .before = goes_on ? item - 1 : PLAN_NONE,
                                    .behind = PLAN_NONE,
                                    .handle = handle,
                                    .kind = is_hole   ? PLAN_HOLE
                                            : is_live ? PLAN_LIVE
                                                      : PLAN_FIXED};
    if (goes_on) plan->items[item - 1].behind = item;
    if (is_hole) plan_bin_add(plan, item);
    if (is_live) plan_enter_live(plan, item);
    const pool_state state = lochi_pool_state(block);
    const bool has_memory = state != POOL_UNMAPPED && state != POOL_STALE;
    if (!is_hole && has_memory) lochi_plan_count(plan, &plan->items[item], block->bytes, !is_live, 1);
}

loch_status lochi_plan_look(pool_plan *plan)
{
    lochi_lock_assert_held(&plan->pool->lock);
    LOCH_TRY_RETURN(plan_begin(plan));
    plan->joined_bytes = plan->pool->unmapped_handle_bytes;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(plan->pool, block));) {
        const uint32_t met = (uint32_t)plan->handles_count;
        const pool_state state = lochi_pool_state(block);
        if (state != POOL_UNMAPPED && state != POOL_STALE) plan_enter_handles(plan, block);
        plan_enter(plan, block, met ? met - 1 : 0);
    }
    return LOCH_OK;
}

/* --- moves of the plan --- */

/* Returns the cost of placing a block at the start of a hole: empty handles would be used, and handles that could be
 * emptied no longer could. Handles between the first and the last one are empty, because the hole covers them. */
static size_t plan_price(const pool_plan *plan, const plan_item *hole, size_t bytes, size_t *filled)
{
    const plan_handle *first = &plan->handles[hole->handle],
                      *last = &plan->handles[lochi_plan_last_handle(plan, hole->handle, hole->start + bytes)];
    size_t price = 0, empty = last->start + last->bytes - first->start;
    for (const plan_handle *handle = first;; handle = last) {
        if (handle->used) {
            empty -= handle->bytes;
            if (!handle->settled) price += handle->bytes - handle->used;
        }
        if (handle == last) break;
    }
    *filled = empty;
    return price + 2 * empty;
}

/* Returns the cheapest of a few holes. */
static uint32_t plan_cheapest(const pool_plan *plan, const uint32_t *holes, size_t count, size_t bytes, size_t *filled)
{
    uint32_t best = PLAN_NONE;
    size_t least = 0, empty;
    for (size_t i = 0; i < count && (best == PLAN_NONE || least); i++) {
        const size_t price = plan_price(plan, &plan->items[holes[i]], bytes, &empty);
        if (best != PLAN_NONE && price >= least) continue;
        best = holes[i];
        least = price;
        *filled = empty;
    }
    return best;
}

/* Enters a hole into the list of the few smallest; of equal ones the highest is first, because handles are emptied from
 * below. */
static void plan_note_few(const pool_plan *plan, uint32_t *few, size_t *count, uint32_t index)
{
    const plan_item *hole = &plan->items[index];
    size_t at = *count < PLAN_FEW ? (*count)++ : PLAN_FEW;
    for (; at > 0; at--) {
        const plan_item *other = &plan->items[few[at - 1]];
        if (other->bytes < hole->bytes || (other->bytes == hole->bytes && other->start > hole->start)) break;
        if (at < PLAN_FEW) few[at] = few[at - 1];
    }
    if (at < PLAN_FEW) few[at] = index;
}

/* Finds a hole for `bytes` outside of [start, end): the cheapest of the few smallest. */
uint32_t lochi_plan_find_hole(const pool_plan *plan, size_t bytes, uintptr_t start, uintptr_t end, size_t *filled)
{
    uint32_t few[PLAN_FEW];
    size_t count = 0;
    for (unsigned bin = plan_bin(bytes); count < PLAN_FEW && (bin = plan_bin_above(plan, bin)) < PLAN_BINS; bin++) {
        int looked = 0;
        for (uint32_t i = plan->holes->first[bin]; i != PLAN_NONE && looked < PLAN_LOOKED && count < PLAN_FEW;
             i = plan->items[i].next) {
            const plan_item *hole = &plan->items[i];
            looked++;
            if (hole->bytes < bytes || (hole->start < end && hole->start + bytes > start)) continue;
            plan_note_few(plan, few, &count, i);
        }
    }
    return plan_cheapest(plan, few, count, bytes, filled);
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
    plan_bin_remove(plan, into);
    plan->items[to] = (plan_item){.start = hole->start,
                                  .bytes = bytes,
                                  .before = hole->before,
                                  .behind = into,
                                  .handle = hole->handle,
                                  .kind = PLAN_TARGET,
                                  .origin = from};
    plan_link(plan, hole->before, to);
    hole->before = to;
    hole->start += bytes;
    hole->bytes -= bytes;
    while (hole->bytes && !plan_meets(&plan->handles[hole->handle], hole->start, hole->start + hole->bytes))
        hole->handle++;
    plan_bin_add(plan, into);
    plan->moves[plan->moves_count++] = (plan_move){.from = from,
                                                   .to = to,
                                                   .before = stands_before,
                                                   .batch = plan->batches,
                                                   .bytes = bytes,
                                                   .source = plan->items[from].start,
                                                   .target = plan->items[to].start};
    plan->moved_bytes += bytes;
    lochi_plan_count(plan, &plan->items[to], bytes, true, 1);
}

/* Takes back the last move. Its item is where it was. */
void lochi_plan_unplace(pool_plan *plan)
{
    const plan_move *move = &plan->moves[--plan->moves_count];
    const plan_item *target = &plan->items[move->to];
    plan_item *hole = &plan->items[target->behind];
    lochi_plan_count(plan, target, move->bytes, true, -1);
    plan_bin_remove(plan, target->behind);
    hole->start -= move->bytes;
    hole->bytes += move->bytes;
    hole->handle = target->handle;
    plan_bin_add(plan, target->behind);
    plan_link(plan, target->before, target->behind);
    plan->moved_bytes -= move->bytes;
    plan->items_count--;
}

/* Merges a hole, which is in no bin, with the hole behind it. */
static void plan_merge(pool_plan *plan, uint32_t item)
{
    const uint32_t behind = plan->items[item].behind;
    if (behind == PLAN_NONE || plan->items[behind].kind != PLAN_HOLE) return;
    plan_bin_remove(plan, behind);
    if (!plan->items[item].bytes) plan->items[item].handle = plan->items[behind].handle; /* both start there */
    plan->items[item].bytes += plan->items[behind].bytes;
    plan->items[behind].is_gone = true;
    plan_link(plan, item, plan->items[behind].behind);
}

/* Turns the place of a moved item into a hole. It must have been counted out. */
void lochi_plan_leave(pool_plan *plan, uint32_t from)
{
    plan->items[from].kind = PLAN_HOLE;
    plan_merge(plan, from);
    const uint32_t before = plan->items[from].before;
    if (before != PLAN_NONE && plan->items[before].kind == PLAN_HOLE) {
        plan_bin_remove(plan, before);
        plan_merge(plan, before);
        from = before;
    }
    plan_bin_add(plan, from);
}
