/* SPDX-License-Identifier: MIT */
/* Time is cut where a stretch ends after another one has started. Up to the first end after a start the set of live
 * buffers only grows, and from there to the next start it only shrinks. So the moment before a cut stands for all
 * moments from the cut before it: sections are the largest sets of buffers that are live together. */
#include "part.h"
#include "memory.h"
#include <stdlib.h>

/* A start or an end of a stretch. */
typedef struct part_event {
    uint64_t time;
    uint32_t is_end, reserved;
} part_event;

/* Orders by time, ends first. */
static int part_compare(const void *a, const void *b)
{
    const part_event *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return (int)y->is_end - (int)x->is_end;
}

/* Returns the times at which sections end; NULL without memory. */
static uint64_t *part_find_cuts(const loch_plan_problem *problem, const uint32_t *ids, uint32_t count, size_t stretches,
                                uint32_t *cuts_count)
{
    uint64_t *cuts = lochi_plan_alloc(stretches, sizeof *cuts);
    part_event *events = lochi_plan_alloc(2 * stretches, sizeof *events);
    plan_stretch stretch;
    size_t at = 0;
    bool has_start = false;
    *cuts_count = 0;
    if (!cuts || !events) {
        lochi_plan_free(events);
        lochi_plan_free(cuts);
        return NULL;
    }
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t state = 0; lochi_plan_stretch_next(&problem->buffers[ids[i]], &state, &stretch);) {
            events[at++] = (part_event){.time = stretch.first};
            events[at++] = (part_event){.time = stretch.last, .is_end = 1};
        }
    qsort(events, at, sizeof *events, part_compare);
    for (size_t i = 0; i < at; i++) {
        if (events[i].is_end && has_start) cuts[(*cuts_count)++] = events[i].time;
        has_start = !events[i].is_end;
    }
    lochi_plan_free(events);
    return cuts;
}

/* Returns the number of cuts at or before a time. */
static uint32_t part_section(const uint64_t *cuts, uint32_t count, uint64_t time)
{
    uint32_t low = 0, high = count;
    while (low < high) {
        const uint32_t middle = low + (high - low) / 2;
        if (cuts[middle] <= time)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void lochi_plan_part_free(plan_part *part)
{
    lochi_plan_free(part->items);
    lochi_plan_free(part->spans);
    lochi_plan_free(part->rivals);
    *part = (plan_part){.count = 0};
}

static void part_fill_item(const loch_plan_buffer *buffer, const uint64_t *cuts, uint32_t cuts_count, plan_part *part,
                           plan_item *item, uint32_t *spans_count)
{
    plan_stretch stretch;
    item->bytes = (int64_t)buffer->bytes;
    item->alignment = (int64_t)plan_alignment(buffer);
    item->fixed = buffer->place ? (int64_t)buffer->offset : -1;
    item->width = (double)(buffer->last - buffer->first);
    item->area = item->width * (double)buffer->bytes;
    item->twin = UINT32_MAX;
    item->spans = *spans_count;
    for (uint32_t state = 0; lochi_plan_stretch_next(buffer, &state, &stretch);) {
        part->spans[(*spans_count)++] =
            (plan_span){part_section(cuts, cuts_count, stretch.first), part_section(cuts, cuts_count, stretch.last),
                        (int64_t)stretch.low, (int64_t)stretch.high};
        part->has_windows |= stretch.high - stretch.low < buffer->bytes;
    }
    item->spans_count = *spans_count - item->spans;
    item->is_plain = !buffer->gaps_count;
    if (item->spans_count) {
        item->first = part->spans[item->spans].first;
        item->last = part->spans[*spans_count - 1].last;
    }
}

/* Computes the distances that two items keep. Returns false if they never conflict. */
static bool part_compare_items(const plan_part *part, const plan_item *a, const plan_item *b, int64_t *rise,
                               int64_t *fall)
{
    bool is_rival = false;
    *rise = *fall = INT64_MIN;
    if (a->first >= b->last || b->first >= a->last) return false;
    for (uint32_t i = 0; i < a->spans_count; i++) {
        const plan_span *x = &part->spans[a->spans + i];
        for (uint32_t j = 0; j < b->spans_count; j++) {
            const plan_span *y = &part->spans[b->spans + j];
            if (x->first >= y->last || y->first >= x->last) continue;
            is_rival = true;
            if (x->high - y->low > *rise) *rise = x->high - y->low;
            if (y->high - x->low > *fall) *fall = y->high - x->low;
        }
    }
    return is_rival;
}

static bool part_is_twin(const plan_part *part, const plan_item *a, const plan_item *b)
{
    return a->bytes == b->bytes && a->alignment == b->alignment && a->fixed < 0 && b->fixed < 0 &&
           a->first == b->first && a->last == b->last && a->width == b->width && a->spans_count == 1 &&
           b->spans_count == 1 && part->spans[a->spans].high - part->spans[a->spans].low == a->bytes &&
           part->spans[b->spans].high - part->spans[b->spans].low == b->bytes &&
           part->spans[a->spans].first == part->spans[b->spans].first &&
           part->spans[a->spans].last == part->spans[b->spans].last;
}

static bool part_find_rivals(plan_part *part)
{
    size_t capacity = 0;
    for (uint32_t i = 0; i < part->count; i++) {
        plan_item *item = &part->items[i];
        item->rivals = part->rivals_count;
        for (uint32_t j = 0; j < part->count; j++) {
            plan_rival rival = {.item = j};
            if (i == j || !part_compare_items(part, item, &part->items[j], &rival.rise, &rival.fall)) continue;
            if (!lochi_plan_grow((void **)&part->rivals, &capacity, part->rivals_count + 1, sizeof *part->rivals))
                return false;
            part->rivals[part->rivals_count++] = rival;
            if (j < i && part_is_twin(part, item, &part->items[j])) item->twin = j;
        }
        item->rivals_count = (uint32_t)(part->rivals_count - item->rivals);
    }
    return true;
}

bool lochi_plan_part_build(const loch_plan_problem *problem, const uint32_t *ids, uint32_t count, plan_part *out)
{
    size_t stretches = 0;
    plan_stretch stretch;
    *out = (plan_part){.count = count};
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t state = 0; lochi_plan_stretch_next(&problem->buffers[ids[i]], &state, &stretch);)
            stretches++;
    uint64_t *cuts = part_find_cuts(problem, ids, count, stretches, &out->sections);
    out->items = lochi_plan_alloc(count, sizeof *out->items);
    out->spans = lochi_plan_alloc(stretches, sizeof *out->spans);
    if (!cuts || !out->items || !out->spans) goto fail;
    uint32_t spans_count = 0;
    for (uint32_t i = 0; i < count; i++)
        part_fill_item(&problem->buffers[ids[i]], cuts, out->sections, out, &out->items[i], &spans_count);
    if (!part_find_rivals(out)) goto fail;
    lochi_plan_free(cuts);
    return true;
fail:
    lochi_plan_free(cuts);
    lochi_plan_part_free(out);
    return false;
}
