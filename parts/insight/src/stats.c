/* SPDX-License-Identifier: MIT */
/* Computes figures in one pass over the events. What is live at the peak is collected when the pass reaches it. */
#include "stats.h"
#include <stdlib.h>
#include <string.h>

const uint64_t lochi_insight_lifetime_bounds[INSIGHT_BUCKETS] = {
    1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000, 10000000000, 100000000000, UINT64_MAX};

const uint64_t lochi_insight_size_bounds[INSIGHT_BUCKETS] = {512,
                                                             (uint64_t)4 << 10,
                                                             (uint64_t)32 << 10,
                                                             (uint64_t)256 << 10,
                                                             (uint64_t)2 << 20,
                                                             (uint64_t)16 << 20,
                                                             (uint64_t)128 << 20,
                                                             (uint64_t)1 << 30,
                                                             (uint64_t)8 << 30,
                                                             UINT64_MAX};

/* --- what is live --- */

static int stats_compare_groups(const void *a, const void *b)
{
    const insight_group *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* Keeps the groups that have blocks, most bytes first. */
static void stats_sort_groups(lochi_array *array)
{
    insight_group *groups = array->data;
    size_t count = 0;
    for (size_t i = 0; i < array->count; i++)
        if (groups[i].blocks) groups[count++] = groups[i];
    array->count = count;
    if (count) qsort(groups, count, sizeof *groups, stats_compare_groups);
}

/* Makes one group for each index, and one for those without. */
static bool stats_make_groups(lochi_array *array, size_t count)
{
    if (!lochi_array_reserve(array, count + 1, sizeof(insight_group))) return false;
    insight_group *groups = array->data;
    for (size_t i = 0; i <= count; i++)
        groups[i] = (insight_group){.key = i < count ? (uint32_t)i : LOCH_RECORDING_NONE};
    array->count = count + 1;
    return true;
}

static void stats_add_largest(insight_live *live, uint32_t block, uint64_t bytes)
{
    size_t at = live->largest_count;
    if (at == INSIGHT_LARGEST_MAX && live->largest[at - 1].bytes >= bytes) return;
    if (at == INSIGHT_LARGEST_MAX)
        at--;
    else
        live->largest_count++;
    for (; at && live->largest[at - 1].bytes < bytes; at--)
        live->largest[at] = live->largest[at - 1];
    live->largest[at] = (insight_held){block, bytes};
}

/* Collects the blocks that are live after an event, with their sizes at that time. */
static bool stats_collect(const loch_recording *recording, uint64_t event, const uint64_t *sizes, insight_live *live)
{
    const loch_recording_block *blocks = recording->blocks.data;
    const loch_recording_event *events = recording->events.data;
    const size_t tags = recording->names[LOCH_RECORDING_TAG].count, stacks = recording->stacks.count;
    if (!stats_make_groups(&live->tags, tags) || !stats_make_groups(&live->stacks, stacks)) return false;
    for (uint32_t i = 0; i < recording->blocks.count; i++) {
        const uint32_t freed = blocks[i].free_event;
        if (blocks[i].alloc_event > event || (freed != LOCH_RECORDING_NONE && freed <= event)) continue;
        const uint32_t stack = events[blocks[i].alloc_event].stack;
        insight_group *tag = (insight_group *)live->tags.data + blocks[i].tag;
        insight_group *site = (insight_group *)live->stacks.data + (stack < stacks ? stack : stacks);
        live->blocks++;
        live->bytes += sizes[i];
        tag->blocks++;
        tag->bytes += sizes[i];
        site->blocks++;
        site->bytes += sizes[i];
        stats_add_largest(live, i, sizes[i]);
    }
    stats_sort_groups(&live->tags);
    stats_sort_groups(&live->stacks);
    return true;
}

/* --- the pass over the events --- */

static void stats_add_bucket(insight_bucket *buckets, const uint64_t *bounds, uint64_t value, uint64_t bytes)
{
    size_t at = 0;
    while (at + 1 < INSIGHT_BUCKETS && value >= bounds[at])
        at++;
    buckets[at].count++;
    buckets[at].bytes += bytes;
}

/* Counts a block with its last size. */
static void stats_add_size(insight_stats *stats, uint64_t bytes)
{
    stats_add_bucket(stats->sizes, lochi_insight_size_bounds, bytes, bytes);
}

static void stats_add_call(insight_stats *stats, const loch_recording_event *event)
{
    insight_call *calls = stats->calls.data;
    const size_t at = event->subject;
    if (at >= stats->calls.count) return;
    calls[at].call = event->subject;
    calls[at].count++;
    calls[at].ns += event->value;
    if (event->value > calls[at].longest_ns) calls[at].longest_ns = event->value;
    stats->calls_count++;
    stats->calls_ns += event->value;
}

static int stats_compare_calls(const void *a, const void *b)
{
    const insight_call *x = a, *y = b;
    if (x->ns != y->ns) return x->ns > y->ns ? -1 : 1;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return x->call < y->call ? -1 : x->call > y->call;
}

static void stats_sort_calls(lochi_array *array)
{
    insight_call *calls = array->data;
    size_t count = 0;
    for (size_t i = 0; i < array->count; i++)
        if (calls[i].count) calls[count++] = calls[i];
    array->count = count;
    if (count) qsort(calls, count, sizeof *calls, stats_compare_calls);
}

typedef struct stats_pass {
    const loch_recording *recording;
    insight_stats *stats;
    uint64_t *sizes; /* present bytes of each block */
    uint64_t requested, reserved;
    size_t column;
} stats_pass;

static void stats_add_event(stats_pass *pass, const loch_recording_event *event)
{
    insight_stats *stats = pass->stats;
    const loch_recording_block *block;
    switch (event->kind) {
    case LOCH_RECORDED_ALLOC:
    case LOCH_RECORDED_RESIZE:
        pass->requested += event->value - pass->sizes[event->subject];
        pass->sizes[event->subject] = event->value;
        break;
    case LOCH_RECORDED_FREE:
        block = (const loch_recording_block *)pass->recording->blocks.data + event->subject;
        pass->requested -= pass->sizes[event->subject];
        stats_add_size(stats, pass->sizes[event->subject]);
        if (!block->is_present)
            stats_add_bucket(
                stats->lifetimes, lochi_insight_lifetime_bounds,
                event->time_ns -
                    ((const loch_recording_event *)pass->recording->events.data)[block->alloc_event].time_ns,
                pass->sizes[event->subject]);
        pass->sizes[event->subject] = 0;
        break;
    case LOCH_RECORDED_TAKE: pass->reserved += event->value; break;
    case LOCH_RECORDED_GIVE: pass->reserved -= event->value; break;
    case LOCH_RECORDED_CALL: stats_add_call(stats, event); break;
    default: break;
    }
    if (event->kind < INSIGHT_KINDS) stats->counts[event->kind]++;
}

/* Draws the level up to the column of an event, and the new level there. */
static void stats_add_column(stats_pass *pass, uint64_t time_ns, uint64_t before)
{
    insight_stats *stats = pass->stats;
    const double part = stats->info.duration_ns ? (double)time_ns / (double)stats->info.duration_ns : 0;
    size_t column = (size_t)(part * INSIGHT_COLUMNS);
    if (column >= INSIGHT_COLUMNS) column = INSIGHT_COLUMNS - 1;
    while (pass->column < column)
        stats->columns[++pass->column] = before;
    if (pass->requested > stats->columns[column]) stats->columns[column] = pass->requested;
}

static bool stats_walk(stats_pass *pass)
{
    insight_stats *stats = pass->stats;
    const loch_recording_event *events = pass->recording->events.data;
    const size_t count = pass->recording->events.count;
    for (size_t i = 0; i < count; i++) {
        const uint64_t before = pass->requested;
        stats_add_event(pass, &events[i]);
        stats_add_column(pass, events[i].time_ns, before);
        if (i != stats->info.peak_event) continue;
        stats->peak_ns = events[i].time_ns;
        stats->reserved_at_peak = pass->reserved;
        if (!stats_collect(pass->recording, i, pass->sizes, &stats->peak)) return false;
    }
    const loch_recording_block *blocks = pass->recording->blocks.data;
    for (size_t i = 0; i < pass->recording->blocks.count; i++)
        if (blocks[i].free_event == LOCH_RECORDING_NONE) stats_add_size(stats, pass->sizes[i]);
    return stats_collect(pass->recording, count, pass->sizes, &stats->end);
}

bool lochi_insight_stats_compute(const loch_recording *recording, insight_stats *out)
{
    lochi_array sizes = {.data = NULL};
    *out = (insight_stats){.info = recording->info};
    const size_t calls = (size_t)out->info.calls;
    bool is_good = lochi_array_reserve(&sizes, recording->blocks.count + 1, sizeof(uint64_t)) &&
                   lochi_array_reserve(&out->calls, calls + 1, sizeof(insight_call));
    out->calls.count = is_good ? calls : 0;
    stats_pass pass = {.recording = recording, .stats = out, .sizes = sizes.data};
    is_good = is_good && stats_walk(&pass);
    if (is_good) stats_sort_calls(&out->calls);
    lochi_array_free(&sizes);
    return is_good;
}

void lochi_insight_stats_free(insight_stats *stats)
{
    lochi_array_free(&stats->peak.tags);
    lochi_array_free(&stats->peak.stacks);
    lochi_array_free(&stats->end.tags);
    lochi_array_free(&stats->end.stacks);
    lochi_array_free(&stats->calls);
}

double lochi_insight_stats_fragmentation(const insight_stats *stats)
{
    if (!stats->reserved_at_peak) return -1;
    if (!stats->info.peak_requested || stats->info.peak_requested >= stats->reserved_at_peak) return 0;
    return 1 - (double)stats->info.peak_requested / (double)stats->reserved_at_peak;
}
