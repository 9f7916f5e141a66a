/* SPDX-License-Identifier: MIT */
/* Plans slides: where holes are smaller than any block, each block moves into the free memory before it, and the
 * free memory is joined behind the last block. */
#include "memory/pool/moving/slide.h"
#include "memory/pool/moving/plan.h"

#define SLIDE_PRICE 16         /* bytes that may slide for each byte that is joined */
#define SLIDE_WHOLE_LIVES 2048 /* blocks that may move, from which on slides are planned before handles are emptied */
#define SLIDE_WHOLE_PRICE 4    /* bytes that such slides may move for each byte that is joined */
#define SLIDE_WHOLE_PART 64    /* part of the free memory that they may leave apart */

/* A run of neighbours that can slide together: from a hole to a hole, with movable blocks between them. */
typedef struct slide_run {
    uint32_t first, last;
    size_t free, cost; /* bytes of the holes, and of the other items */
} slide_run;

/* Takes the first hole, and the items up to the next hole, out of a run. */
static void slide_shorten(const pool_plan *plan, slide_run *run)
{
    run->free -= plan->items[run->first++].bytes;
    while (plan->items[run->first].kind != PLAN_HOLE)
        run->cost -= plan->items[run->first++].bytes;
}

/* Finds the run with at least `goal` bytes of holes that moves the fewest bytes. The plan has no moves yet. */
static bool slide_find_run(const pool_plan *plan, size_t goal, slide_run *out)
{
    bool is_found = false;
    slide_run run = {.free = 0};
    for (uint32_t i = 0; i < plan->items_count; i++) {
        const plan_item *item = &plan->items[i];
        if (item->kind == PLAN_FIXED || item->before == PLAN_NONE || !run.free) run = (slide_run){.first = i};
        if (item->kind == PLAN_LIVE && run.free) run.cost += item->bytes;
        if (item->kind != PLAN_HOLE) continue;
        run.free += item->bytes;
        run.last = i;
        while (run.first != i && run.free - plan->items[run.first].bytes >= goal)
            slide_shorten(plan, &run);
        if (run.free < goal || (is_found && run.cost >= out->cost)) continue;
        *out = run;
        is_found = true;
    }
    return is_found;
}

/* Plans to slide every item of a run. Items keep their places in the list. */
static void slide_enter_run(pool_plan *plan, const slide_run *run)
{
    size_t gap = 0;
    for (uint32_t i = run->first;; i = plan->items[i].behind) {
        const plan_item *item = &plan->items[i];
        if (item->kind == PLAN_HOLE) {
            gap += item->bytes;
        } else {
            plan->moves[plan->moves_count++] = (plan_move){.from = i,
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

size_t lochi_plan_price_slides(const pool_plan *plan, size_t goal)
{
    slide_run run;
    return slide_find_run(plan, goal, &run) ? run.cost : SIZE_MAX;
}

/* Plans one run that reaches the goal. */
void lochi_plan_slides(pool_plan *plan, size_t goal)
{
    slide_run run = {.free = 0};
    if (slide_find_run(plan, goal, &run)) slide_enter_run(plan, &run);
    plan->joined_bytes = run.free;
}

/* Returns the bytes of the handles that lie wholly in [start, end). `first` is a handle that starts before them. */
static size_t slide_whole(const pool_plan *plan, size_t first, uintptr_t start, uintptr_t end)
{
    size_t bytes = 0;
    for (size_t i = first; i < plan->handles_count; i++) {
        const plan_handle *handle = &plan->handles[i];
        if (handle->start + handle->bytes > end) break;
        if (handle->start >= start) bytes += handle->bytes;
    }
    return bytes;
}

/* Returns the bytes that a run would join in addition to those joined in it now: whole handles, or one piece in a
 * raw segment. */
static size_t slide_gain(const pool_plan *plan, const slide_run *run)
{
    const uintptr_t end = plan->items[run->last].start + plan->items[run->last].bytes;
    size_t now = 0, largest = 0;
    for (uint32_t i = run->first;; i = plan->items[i].behind) {
        const plan_item *item = &plan->items[i];
        if (item->kind == PLAN_HOLE) {
            now += slide_whole(plan, item->handle, item->start, item->start + item->bytes);
            if (item->bytes > largest) largest = item->bytes;
        }
        if (i == run->last) break;
    }
    if (!plan->pool->policy.is_virtual) return run->free - largest;
    const size_t then = slide_whole(plan, plan->items[run->first].handle, end - run->free, end);
    return then > now ? then - now : 0;
}

static void slide_if_worth_it(pool_plan *plan, const slide_run *run, size_t budget)
{
    if (!run->cost || plan->moved_bytes + run->cost > budget) return;
    const size_t gain = slide_gain(plan, run);
    if (gain < run->cost / SLIDE_PRICE + 1) return;
    slide_enter_run(plan, run);
    if (plan->pool->policy.is_virtual) plan->joined_bytes += gain;
}

/* Plans all slides between fixed blocks that are worth their cost. Comes last, when as much as possible is to be
 * joined. */
void lochi_plan_slide_all(pool_plan *plan, size_t budget)
{
    for (uint32_t head = 0; head < plan->items_count; head++) {
        if (plan->items[head].is_gone || plan->items[head].before != PLAN_NONE) continue;
        slide_run run = {.free = 0};
        size_t behind = 0; /* bytes behind the last hole */
        for (uint32_t i = head; i != PLAN_NONE; i = plan->items[i].behind) {
            const plan_item *item = &plan->items[i];
            if (item->kind == PLAN_FIXED) {
                slide_if_worth_it(plan, &run, budget);
                run = (slide_run){.free = 0};
            } else if (item->kind == PLAN_HOLE && item->bytes) {
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
        slide_if_worth_it(plan, &run, budget);
    }
}

/* Returns the bytes of free memory in all handles. */
static size_t slide_count_free(const pool_plan *plan)
{
    size_t bytes = plan->pool->unmapped_handle_bytes;
    for (size_t i = 0; i < plan->handles_count; i++)
        bytes += plan->handles[i].bytes - plan->handles[i].used;
    return bytes;
}

/* With many blocks, emptying handle by handle takes long and leaves so much apart that slides would follow, which move
 * the same blocks again. */
bool lochi_plan_slide_whole(pool_plan *plan, size_t budget)
{
    if (!plan->pool->policy.is_virtual || plan->lives_count < SLIDE_WHOLE_LIVES) return false;
    const size_t joined = plan->joined_bytes, free = slide_count_free(plan);
    lochi_plan_slide_all(plan, budget);
    const bool is_cheap = plan->joined_bytes - joined >= plan->moved_bytes / SLIDE_WHOLE_PRICE;
    if (is_cheap && plan->joined_bytes >= free - free / SLIDE_WHOLE_PART) return true;
    plan->joined_bytes = joined;
    plan->moves_count = plan->moved_bytes = plan->batches = 0;
    return false;
}
