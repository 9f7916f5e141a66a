/* SPDX-License-Identifier: MIT */
/* Compaction: moves movable blocks, so that scattered free memory can serve one large block.
 *
 * There are three ways (plan.h). Where handles can be remapped, free memory in whole handles serves any request, so
 * handles are emptied. For less than a handle, and in raw segments, which cannot be remapped, a window of
 * neighbouring blocks is emptied. Where no hole is large enough for any block, neighbours slide together. The way
 * that moves the fewest bytes is taken.
 *
 * First, all free memory is given to the lane whose stream copies. That stream waits for the other streams on the
 * device. After that, free neighbours are one block, as in the plan, and each move finds its target behind the block
 * that precedes it in the plan. Moves are carried out in the order of the plan. A failure half way leaves a
 * consistent pool. */
#include "memory/pool/moving/compact.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "kit/text.h"
#include "kit/sized.h"
#include "memory/movable.h"
#include "memory/pool/front/front.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/trim/trim.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/moving/move.h"
#include "memory/pool/state/state.h"
#include "memory/pool/moving/plan.h"
#include "memory/pool/limits/limits.h"
#include "memory/pool/moving/slide.h"
#include "memory/pool/moving/vacate.h"
#include <string.h>

/* --- planning --- */

/* Flushes the threads' caches, collects blocks that waited for streams, and gives all free memory to `lane`, which
 * waits for the other lanes on the device. Leaves out memory of lanes that cannot be waited for, and blocks that
 * captured work uses. */
static void compact_prepare(lochi_pool *pool, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    pool->moving.orders++;
    lochi_pool_flush_threads(pool);
    const loch_error saved = lochi_error_save();
    pool->moving.lanes_out_of_reach = 0;
    for (pool_lane *other = pool->lanes; other; other = other->next) {
        if (other->unmarked_bytes && !other->is_closed)
            lochi_pool_mark(pool, other); /* waiting blocks need this event */
        lochi_pool_poll(pool, other);
        other->is_out_of_reach = other->capture || lochi_pool_is_under_capture(pool, other);
        pool->moving.lanes_out_of_reach += other->is_out_of_reach;
    }
    lochi_pool_collect(pool);
    for (pool_lane *other = pool->lanes; other; other = other->next)
        lochi_pool_slab_trim(pool, other);
    lochi_pool_join_all(pool);
    (void)!lochi_pool_mend_all(pool, lane); /* torn blocks that cannot be mended stay torn */
    for (pool_block *block = NULL; pool->lanes->next && (block = lochi_pool_next_block(pool, block));) {
        if (lochi_pool_state(block) != POOL_FREE || block->lane == lane || block->lane->capture || block->is_piece)
            continue;
        const bool has_passed = lochi_pool_has_passed(block->lane, lochi_pool_epoch(block));
        if (lochi_pool_wait_on_device(pool, lane, block->lane, lochi_pool_epoch(block)) != LOCH_OK) continue;
        pool->crossed_bytes += block->bytes;
        block = lochi_pool_adopt(pool, block, lane, has_passed ? 0 : lane->epoch);
    }
    lochi_error_restore(&saved);
}

/* Plans to empty handles until they join `bytes`. */
static bool compact_by_handles(pool_plan *plan, size_t bytes, size_t budget)
{
    const size_t step = plan->pool->step_bytes, goal = (bytes + step - 1) / step * step;
    lochi_plan_vacate(plan, goal, budget);
    return plan->joined_bytes >= goal;
}

/* Plans to empty a window of neighbours. In a pool with virtual memory only for requests of at most one handle:
 * emptying part of a large handle moves less than emptying all of it. Plans nothing if that is not possible. */
static bool compact_by_window(pool_plan *plan, size_t bytes, size_t budget)
{
    size_t largest = 0;
    for (size_t i = 0; i < plan->handles_count && largest < bytes; i++)
        if (plan->handles[i].bytes > largest) largest = plan->handles[i].bytes;
    return (!plan->pool->policy.is_virtual || bytes <= largest) && lochi_plan_window(plan, bytes, budget);
}

/* Lists the blocks of the pool again, without the moves of the plan. */
static loch_status compact_look_again(pool_plan *plan)
{
    pool_plan other = {.pool = plan->pool, .lane = plan->lane};
    lochi_plan_end(plan);
    const loch_status status = lochi_plan_look(&other);
    *plan = other;
    return status;
}

/* Plans to empty handles with fewer moved bytes than the plan, and takes that plan if there is one. */
static loch_status compact_improve(pool_plan *plan, size_t bytes)
{
    if (!plan->moved_bytes) return LOCH_OK;
    pool_plan other = {.pool = plan->pool, .lane = plan->lane};
    const loch_status status = lochi_plan_look(&other);
    const bool is_better = status == LOCH_OK && compact_by_handles(&other, bytes, plan->moved_bytes - 1);
    lochi_plan_end(is_better ? plan : &other);
    if (is_better) *plan = other;
    return status;
}

/* Plans in three ways and keeps the plan that moves the fewest bytes: a window, handles, slides. A slide is the plan of
 * last resort: its cost is the budget of the others. */
static loch_status compact_try_ways(pool_plan *plan, size_t bytes, size_t budget, bool is_in_handles)
{
    size_t slide_bytes = SIZE_MAX;
    if (!is_in_handles || plan->pool->policy.is_virtual) slide_bytes = lochi_plan_price_slides(plan, bytes);
    const bool can_slide = slide_bytes != SIZE_MAX && slide_bytes <= budget;
    if (can_slide) budget = slide_bytes;
    if (!is_in_handles && compact_by_window(plan, bytes, budget)) return compact_improve(plan, bytes);
    if (compact_by_handles(plan, bytes, budget)) return LOCH_OK;
    if (!can_slide) return LOCH_FAIL(FRAGMENTED, "no moves of movable blocks join %s in one piece", LOCHI_SIZE(bytes));
    LOCH_TRY_RETURN(compact_look_again(plan));
    lochi_plan_slides(plan, bytes);
    return LOCH_OK;
}

static loch_status compact_make_piece(pool_plan *plan, size_t bytes, size_t budget, bool is_in_handles)
{
    const size_t largest = lochi_plan_largest(plan);
    if (!is_in_handles && largest >= bytes) { /* already there: nothing has to move */
        if (plan->joined_bytes < largest) plan->joined_bytes = largest;
        return LOCH_OK;
    }
    if (bytes <= plan->pool->reserved) return compact_try_ways(plan, bytes, budget, is_in_handles);
    return LOCH_FAIL(FRAGMENTED, "%s are more than the pool holds: no moves join them", LOCHI_SIZE(bytes));
}

/* Plans to join as much as possible: by slides alone if they join everything at a good price, otherwise by emptying
 * handles and by slides of the rest. */
static void compact_make_all(pool_plan *plan, size_t budget)
{
    if (lochi_plan_slide_whole(plan, budget)) return;
    lochi_plan_vacate(plan, SIZE_MAX, budget);
    lochi_plan_slide_all(plan, budget);
}

static loch_status compact_make(pool_plan *plan, pool_goal goal, size_t bytes, size_t budget)
{
    LOCH_TRY_RETURN(lochi_plan_look(plan));
    loch_status status = LOCH_OK;
    if (goal == POOL_GOAL_ALL)
        compact_make_all(plan, budget);
    else
        status = compact_make_piece(plan, bytes, budget, goal == POOL_GOAL_HANDLES);
    if (status != LOCH_OK) plan->joined_bytes = plan->moves_count = plan->moved_bytes = 0;
    return status;
}

/* --- carrying out --- */

/* Finds the free block that starts behind an item. */
static pool_block *compact_find_free(const pool_plan *plan, uint32_t before, uintptr_t start)
{
    if (before != PLAN_NONE) return plan->items[before].block->behind;
    const pool_cell *cell = lochi_pool_find_cell(plan->pool, start); /* the first block of its region */
    return plan->pool->policy.is_virtual ? plan->pool->first : cell->handle->first;
}

/* Cuts a target out of its hole. Marks it as used, so that it does not merge with neighbours. */
static loch_status compact_cut(pool_plan *plan, const plan_move *move)
{
    plan_item *target = &plan->items[move->to];
    pool_block *block = compact_find_free(plan, move->before, target->start);
    if (!block || block->start != target->start || block->bytes < move->bytes || !lochi_plan_is_hole(plan, block))
        return LOCH_FAIL(BUSY, "the free memory at %p was taken during the compaction", (void *)target->start);
    LOCH_TRY_RETURN(lochi_pool_cut(plan->pool, block, target->start, move->bytes));
    lochi_pool_set_state(block, POOL_SPECIAL);
    target->block = block; /* the record stays with the front part */
    return LOCH_OK;
}

/* Carries out the moves of one batch, starting at `first`. Targets that were cut but not needed become free again. */
static loch_status compact_run_batch(pool_plan *plan, size_t first, size_t end)
{
    loch_status status = LOCH_OK;
    size_t cut = first, done = first;
    while (cut < end && status == LOCH_OK) {
        status = compact_cut(plan, &plan->moves[cut]);
        cut += status == LOCH_OK;
    }
    while (done < cut && status == LOCH_OK) {
        const plan_move *move = &plan->moves[done++];
        pool_block *target = plan->items[move->to].block;
        status = lochi_pool_move(plan->pool, plan->items[move->from].block, target, plan->lane);
        if (status != LOCH_OK) break;
        plan->moves_count++;
        plan->moved_bytes += move->bytes;
    }
    for (; status != LOCH_OK && done < cut; done++) {
        pool_block *target = plan->items[plan->moves[done].to].block;
        lochi_pool_make_free(plan->pool, target, lochi_pool_epoch(target));
    }
    return status;
}

static loch_status compact_run_slide(pool_plan *plan, const plan_move *move)
{
    LOCH_TRY_RETURN(lochi_pool_slide(plan->pool, plan->items[move->from].block, plan->lane));
    plan->moves_count++;
    plan->moved_bytes += move->bytes;
    return LOCH_OK;
}

static loch_status compact_carry_out(pool_plan *plan)
{
    lochi_lock_assert_held(&plan->pool->lock);
    const size_t count = plan->moves_count;
    loch_status status = LOCH_OK;
    plan->moves_count = plan->moved_bytes = 0;
    for (size_t first = 0, end; first < count && status == LOCH_OK; first = end) {
        for (end = first + 1; end < count && plan->moves[end].batch == plan->moves[first].batch;)
            end++;
        status = plan->moves[first].is_slide ? compact_run_slide(plan, &plan->moves[first])
                                             : compact_run_batch(plan, first, end);
    }
    if (count)
        lochi_pool_mark(plan->pool, plan->lane); /* the event can be waited for even if the stream is captured next */
    return status;
}

loch_status lochi_pool_compact(lochi_pool *pool, pool_lane *lane, pool_goal goal, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    pool_plan plan = {.pool = pool, .lane = lane};
    compact_prepare(pool, lane);
    loch_status status = compact_make(&plan, goal, bytes, SIZE_MAX);
    if (status == LOCH_OK && plan.moves_count && pool->moving.forbidden)
        status = LOCH_FAIL(MOVING_FORBIDDEN, "%s would fit after a compaction, but moving is forbidden now",
                           LOCHI_SIZE(bytes));
    if (status == LOCH_OK) status = compact_carry_out(&plan);
    lochi_plan_end(&plan);
    return status;
}

/* --- in public --- */

static loch_status compact_read(loch_allocator *allocator, const loch_compact_options *given,
                                loch_compact_options *options, lochi_pool **pool)
{
    *pool = lochi_pool_of(allocator);
    if (!*pool) return LOCH_FAIL(INVALID, "only a pool can be compacted");
    *options = (loch_compact_options){.size = sizeof *options};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of options for compaction", given, options, sizeof *options));
    if (!options->budget_bytes) options->budget_bytes = SIZE_MAX;
    if (!options->stream) options->stream = (*pool)->default_stream;
    return lochi_stream_check(options->stream, (*pool)->device);
}

/* Finds the lane that compacts. The lane of a capture cannot compact: free memory given to it would belong to the
 * capture. */
static pool_lane *compact_choose_lane(lochi_pool *pool, loch_stream *stream, loch_status *status)
{
    pool_lane *lane = lochi_pool_lane(pool, stream, status);
    if (lane && pool->is_of_graphs)
        *status = LOCH_FAIL(UNSUPPORTED, "the memory of pool \"%s\" belongs to graphs: its blocks cannot move",
                            loch_allocator_get_name(pool->allocator));
    else if (lane && lane->capture)
        *status = LOCH_FAIL(BUSY, "a pool cannot be compacted on a stream that is captured");
    if (lane && lochi_pool_is_out_of_use(pool)) *status = lochi_pool_refuse_asleep(pool);
    return lane;
}

static loch_status compact_plan(pool_plan *plan, const loch_compact_options *options, bool is_to_move)
{
    lochi_lock_assert_held(&plan->pool->lock);
    loch_status status;
    plan->lane = compact_choose_lane(plan->pool, options->stream, &status);
    if (status != LOCH_OK) return status;
    if (is_to_move && plan->pool->moving.forbidden)
        return LOCH_FAIL(MOVING_FORBIDDEN, "moving is forbidden in pool \"%s\" now",
                         loch_allocator_get_name(plan->pool->allocator));
    compact_prepare(plan->pool, plan->lane);
    const pool_goal goal = options->contiguous_bytes ? POOL_GOAL_PIECE : POOL_GOAL_ALL;
    return compact_make(plan, goal, options->contiguous_bytes, options->budget_bytes);
}

static void compact_tell(const pool_plan *plan, loch_compact_report *report)
{
    const loch_compact_report full = {sizeof full, plan->moves_count, plan->moved_bytes, plan->joined_bytes};
    if (lochi_sized_is_set(report)) lochi_sized_write(report, &full, sizeof full);
}

loch_status loch_pool_compact(loch_allocator *pool, const loch_compact_options *options, loch_compact_report *report)
{
    lochi_pool *self;
    loch_compact_options read;
    LOCH_TRY_RETURN(compact_read(pool, options, &read, &self));
    pool_plan plan = {.pool = self};
    lochi_pool_take_locks(self);
    loch_status status = compact_plan(&plan, &read, true);
    if (status == LOCH_OK) status = compact_carry_out(&plan);
    if (status != LOCH_OK) plan.joined_bytes = 0; /* the plan was not completed */
    lochi_pool_drop_locks(self);
    compact_tell(&plan, report);
    lochi_plan_end(&plan);
    return status;
}

loch_status loch_pool_plan_compact(loch_allocator *pool, const loch_compact_options *options,
                                   loch_move_function *visitor, void *user, loch_compact_report *report)
{
    LOCHI_NOT_CANCELLED;
    lochi_pool *self;
    loch_compact_options read;
    LOCH_TRY_RETURN(compact_read(pool, options, &read, &self));
    pool_plan plan = {.pool = self};
    lochi_pool_take_locks(self);
    const loch_status status = compact_plan(&plan, &read, false);
    for (size_t i = 0; i < plan.moves_count && status == LOCH_OK && visitor; i++) {
        const plan_move *planned = &plan.moves[i];
        const plan_item *item = &plan.items[planned->from];
        const pool_block *block = item->kind == PLAN_TARGET ? plan.items[item->origin].block : item->block;
        const loch_move move = {(void *)planned->source, (void *)planned->target, lochi_pool_requested(block),
                                block->tag, block->owner->buffer};
        visitor(self->allocator, &move, user);
    }
    lochi_pool_drop_locks(self);
    compact_tell(&plan, report);
    lochi_plan_end(&plan);
    return status;
}

loch_status loch_pool_set_move_hook(loch_allocator *pool, loch_move_function *hook, void *user)
{
    lochi_pool *self = lochi_pool_of(pool);
    if (!self) return LOCH_FAIL(INVALID, "only a pool can move memory");
    lochi_lock_take(&self->lock);
    self->moving.hook = hook;
    self->moving.hook_user = user;
    lochi_lock_drop(&self->lock);
    return LOCH_OK;
}

/* Raises or lowers the count of reasons why moving is forbidden. */
static loch_status compact_forbid(loch_allocator *allocator, bool is_more)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    if (!pool) return LOCH_FAIL(INVALID, "only a pool can move memory");
    loch_status status = LOCH_OK;
    lochi_lock_take(&pool->lock);
    if (is_more)
        pool->moving.forbidden++;
    else if (pool->moving.forbidden)
        pool->moving.forbidden--;
    else
        status = LOCH_FAIL(INVALID, "moving is not forbidden in pool \"%s\"", loch_allocator_get_name(pool->allocator));
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
