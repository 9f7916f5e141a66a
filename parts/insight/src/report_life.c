/* SPDX-License-Identifier: MIT */
/* Lives: a block at one address with one size, from one moment to another. A block that is resized or moved has
 * several. The page gets the largest lives by bytes times time, and before all others those of the peak and of the end,
 * so that what it shows of these two moments is complete. The ranges of drivers are selected in this way too.
 *
 * A life is packed as: begin (moment, time), length (moments + 1, or 0 if it has no end; time), address, bytes, id,
 * flags, tag, call site, stream, allocator, stack + 1. A range: begin, length, address, bytes, kind, device, memory.
 * Groups and stacks are numbered in the order of their first use. */
#include "report.h"
#include "format.h"
#include <stdlib.h>
#include <string.h>

enum { LIFE_PRESENT = 1, LIFE_SHARED = 2, LIFE_RESIZED = 4, LIFE_MOVED = 8 };

#define LIFE_NO_END UINT32_MAX
#define LIFE_CLASSES 4096 /* of weights, by their logarithm; the last class is for what is always kept */

typedef struct life {
    uint64_t address, bytes;
    uint32_t subject, begin, end; /* block or range; events */
    uint32_t flags;
} life;

/* What a walk over the events knows of each block. */
typedef struct life_block {
    uint64_t address, bytes;
    uint32_t begin, flags;
} life_block;

/* --- selection --- */

static uint64_t life_end_ns(const report_run *run, const life *one)
{
    return one->end == LIFE_NO_END ? run->end_ns : run->events[one->end].time_ns;
}

/* Returns bytes times nanoseconds in the window. */
static double life_weigh(const report_run *run, const life *one)
{
    uint64_t begin_ns = run->events[one->begin].time_ns;
    const uint64_t end_ns = life_end_ns(run, one);
    if (begin_ns < run->begin_ns) begin_ns = run->begin_ns;
    return end_ns > begin_ns ? (double)one->bytes * (double)(end_ns - begin_ns) : 0;
}

static bool life_is_of_peak(const report_run *run, const life *one)
{
    return one->begin < run->peak_moment && (one->end == LIFE_NO_END || one->end >= run->peak_moment);
}

/* Returns the class of a life: its weight in sixteenths of a power of two. */
static unsigned life_class(const report_run *run, const life *one)
{
    if (one->end == LIFE_NO_END || life_is_of_peak(run, one)) return LIFE_CLASSES - 1;
    const double weight = life_weigh(run, one) + 1.0;
    uint64_t bits;
    memcpy(&bits, &weight, sizeof bits); /* exponent, then the highest bits of the fraction */
    const uint64_t class = (bits >> 48) - (UINT64_C(1023) << 4);
    return class < LIFE_CLASSES - 1 ? (unsigned)class : LIFE_CLASSES - 2;
}

typedef struct life_candidate {
    double weight;
    uint32_t index;
} life_candidate;

static int life_compare_weight(const void *left, const void *right)
{
    const life_candidate *a = left, *b = right;
    if (a->weight > b->weight || a->weight < b->weight) return a->weight < b->weight ? 1 : -1;
    return a->index < b->index ? -1 : a->index > b->index;
}

/* Keeps the heaviest `limit` lives, in their order. Returns false if there is no memory. */
static bool life_select(const report_run *run, lochi_array *lives, size_t limit, double *share)
{
    life *all = lives->data;
    uint32_t counts[LIFE_CLASSES] = {0};
    lochi_array edge = {.data = NULL};
    double total = 0, kept = 0;
    for (size_t i = 0; i < lives->count; i++) {
        total += life_weigh(run, &all[i]);
        counts[life_class(run, &all[i])]++;
    }
    *share = 1;
    if (lives->count <= limit) return true;
    unsigned last = LIFE_CLASSES - 1;
    size_t room = limit;
    while (counts[last] <= room)
        room -= counts[last--]; /* whole classes; of class `last` the heaviest `room` */
    bool is_good = true;
    for (uint32_t i = 0; is_good && i < lives->count; i++)
        if (life_class(run, &all[i]) == last) {
            const life_candidate one = {life_weigh(run, &all[i]), i};
            is_good = lochi_array_append(&edge, &one, 1, sizeof one);
        }
    life_candidate *candidates = edge.data;
    if (is_good && edge.count) qsort(candidates, edge.count, sizeof *candidates, life_compare_weight);
    size_t count = 0;
    for (uint32_t i = 0; is_good && i < lives->count; i++) {
        const unsigned class = life_class(run, &all[i]);
        const life_candidate one = {class == last ? life_weigh(run, &all[i]) : 0, i};
        if (class < last || (class == last && (!room || life_compare_weight(&one, &candidates[room - 1]) > 0)))
            continue;
        kept += life_weigh(run, &all[i]);
        all[count++] = all[i];
    }
    lives->count = count;
    if (total > 0) *share = kept / total;
    lochi_array_free(&edge);
    return is_good;
}

/* --- lives of the events --- */

static bool life_add(const report_run *run, lochi_array *lives, uint32_t block, const life_block *state, uint32_t end)
{
    if (end != LIFE_NO_END && end < run->begin) return true; /* ended before the window */
    const life one = {state->address, state->bytes, block, state->begin, end, state->flags};
    return lochi_array_append(lives, &one, 1, sizeof one);
}

/* Collects the lives of all blocks. Returns false if there is no memory. */
static bool life_collect(const report_run *run, lochi_array *lives)
{
    lochi_array memory = {.data = NULL};
    bool is_good = lochi_array_reserve(&memory, run->info.blocks + 1, sizeof(life_block));
    life_block *states = memory.data;
    for (uint32_t i = 0; is_good && i < run->end; i++) {
        const loch_recording_event *event = &run->events[i];
        if (event->kind > LOCH_RECORDED_MOVE) continue;
        const loch_recording_block *block = &run->blocks[event->subject];
        life_block *state = &states[event->subject];
        if (event->kind == LOCH_RECORDED_ALLOC) {
            *state = (life_block){block->address, event->value, i, block->is_present ? LIFE_PRESENT : 0};
        } else if (event->kind == LOCH_RECORDED_USE) {
            state->flags |= LIFE_SHARED;
        } else {
            is_good = life_add(run, lives, event->subject, state, i);
            state->begin = i;
            if (event->kind == LOCH_RECORDED_MOVE) {
                state->address = event->value;
                state->flags |= LIFE_MOVED;
            } else {
                state->bytes = event->value;
                state->flags |= LIFE_RESIZED;
            }
        }
    }
    for (uint32_t i = 0; is_good && i < run->info.blocks; i++) {
        const loch_recording_block *block = &run->blocks[i];
        const bool has_ended = block->free_event != LOCH_RECORDING_NONE && block->free_event < run->end;
        if (!has_ended && block->alloc_event < run->end) is_good = life_add(run, lives, i, &states[i], LIFE_NO_END);
    }
    lochi_array_free(&memory);
    return is_good;
}

static bool life_collect_ranges(const report_run *run, lochi_array *lives)
{
    const loch_recording_range *ranges = loch_recording_get_ranges(run->recording);
    bool is_good = true;
    for (uint32_t i = 0; is_good && i < run->info.ranges; i++) {
        const bool has_ended = ranges[i].give_event != LOCH_RECORDING_NONE && ranges[i].give_event < run->end;
        if (ranges[i].take_event >= run->end || (has_ended && ranges[i].give_event < run->begin)) continue;
        const life one = {ranges[i].address,
                          ranges[i].bytes,
                          i,
                          ranges[i].take_event,
                          has_ended ? ranges[i].give_event : LIFE_NO_END,
                          0};
        is_good = lochi_array_append(lives, &one, 1, sizeof one);
    }
    return is_good;
}

/* --- packing --- */

static int life_compare_begin(const void *left, const void *right)
{
    const life *a = left, *b = right;
    if (a->begin != b->begin) return a->begin < b->begin ? -1 : 1;
    return a->subject < b->subject ? -1 : a->subject > b->subject;
}

/* Returns the number in the page of a group or stack; the first use gives it one. */
static uint32_t life_number(lochi_array *used, lochi_array *order, uint32_t group, bool *is_good)
{
    if (!*is_good || !lochi_array_reserve(used, (size_t)group + 1, sizeof(uint32_t))) {
        *is_good = false;
        return 0;
    }
    uint32_t *number = (uint32_t *)used->data + group;
    if (!*number) {
        *is_good = lochi_array_append(order, &group, 1, sizeof group);
        *number = (uint32_t)order->count;
    }
    return *number - 1;
}

/* Packs what lives and ranges have in common. `before` is NULL for the first. */
static void life_pack_place(const report_run *run, report_bytes *out, const life *before, const life *one)
{
    const uint64_t begin_ns = run->events[one->begin].time_ns;
    lochi_insight_report_put(out, one->begin - (before ? before->begin : 0));
    lochi_insight_report_put(out, begin_ns - (before ? run->events[before->begin].time_ns : 0));
    lochi_insight_report_put(out, one->end == LIFE_NO_END ? 0 : one->end - one->begin + UINT64_C(1));
    if (one->end != LIFE_NO_END) lochi_insight_report_put(out, life_end_ns(run, one) - begin_ns);
    lochi_insight_report_put_change(out, before ? before->address : 0, one->address);
    lochi_insight_report_put(out, one->bytes);
}

/* Returns the number in the page of a stack, plus 1; 0 for none. The first use gives it one while there is room for its
 * frames. */
static uint64_t life_stack(report_run *run, uint32_t stack, bool *is_good)
{
    if (stack >= run->info.stacks) return 0;
    if (!lochi_array_reserve(&run->used_stacks, (size_t)stack + 1, sizeof(uint32_t))) *is_good = false;
    if (*is_good && !((const uint32_t *)run->used_stacks.data)[stack]) {
        size_t count;
        loch_recording_get_stack(run->recording, stack, &count);
        if (run->frames + count > REPORT_FRAMES_MAX) {
            run->stacks_left_out = true;
            return 0;
        }
        run->frames += count;
    }
    return life_number(&run->used_stacks, &run->stack_order, stack, is_good) + UINT64_C(1);
}

/* Gives numbers to the stacks of the peak and of the end, before all others. */
static bool life_number_stacks(report_run *run, const lochi_array *lives)
{
    const life *all = lives->data;
    bool is_good = true;
    for (size_t i = 0; is_good && i < lives->count; i++)
        if (all[i].end == LIFE_NO_END || life_is_of_peak(run, &all[i]))
            life_stack(run, run->events[run->blocks[all[i].subject].alloc_event].stack, &is_good);
    return is_good;
}

static bool life_pack(report_run *run, const lochi_array *lives)
{
    const life *all = lives->data;
    uint64_t id = 0;
    bool is_good = life_number_stacks(run, lives);
    for (size_t i = 0; is_good && i < lives->count; i++) {
        const loch_recording_block *block = &run->blocks[all[i].subject];
        const uint32_t stack = run->events[block->alloc_event].stack;
        life_pack_place(run, &run->lives, i ? &all[i - 1] : NULL, &all[i]);
        lochi_insight_report_put_change(&run->lives, id, block->id);
        lochi_insight_report_put(&run->lives, all[i].flags);
        for (int by = 0; by < REPORT_BYS; by++) {
            if (by == REPORT_SIZE) continue;
            const uint32_t group = lochi_insight_report_group_of(run, (report_by)by, block);
            lochi_insight_report_put(&run->lives, life_number(&run->used[by], &run->order[by], group, &is_good));
        }
        lochi_insight_report_put(&run->lives, life_stack(run, stack, &is_good));
        id = block->id;
    }
    return is_good && !run->lives.has_failed;
}

static bool life_pack_ranges(report_run *run, const lochi_array *lives)
{
    const loch_recording_range *ranges = loch_recording_get_ranges(run->recording);
    const life *all = lives->data;
    for (size_t i = 0; i < lives->count; i++) {
        life_pack_place(run, &run->ranges, i ? &all[i - 1] : NULL, &all[i]);
        lochi_insight_report_put(&run->ranges, ranges[all[i].subject].kind);
        lochi_insight_report_put(&run->ranges, ranges[all[i].subject].device);
        lochi_insight_report_put(&run->ranges, ranges[all[i].subject].memory);
    }
    return !run->ranges.has_failed;
}

loch_status lochi_insight_report_select(report_run *run)
{
    lochi_array lives = {.data = NULL}, ranges = {.data = NULL};
    bool is_good = life_collect(run, &lives) && life_collect_ranges(run, &ranges);
    run->lives_all = lives.count;
    run->ranges_all = ranges.count;
    is_good = is_good && life_select(run, &lives, REPORT_LIVES, &run->lives_share) &&
              life_select(run, &ranges, REPORT_RANGES, &run->ranges_share);
    run->lives_count = lives.count;
    run->ranges_count = ranges.count;
    if (is_good && lives.count) qsort(lives.data, lives.count, sizeof(life), life_compare_begin);
    if (is_good && ranges.count) qsort(ranges.data, ranges.count, sizeof(life), life_compare_begin);
    is_good = is_good && life_pack(run, &lives) && life_pack_ranges(run, &ranges);
    lochi_array_free(&lives);
    lochi_array_free(&ranges);
    return is_good ? LOCH_OK : lochi_insight_no_memory(run->info.path);
}
