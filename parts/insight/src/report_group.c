/* SPDX-License-Identifier: MIT */
/* Groups blocks by tag, call site, size, stream and allocator. A group's weight is the most bytes that it held at a
 * time; the heaviest groups get a band each, the others share the last one. */
#include "report.h"
#include "format.h"
#include <stdlib.h>
#include <string.h>

#define GROUP_SIZES 7

static const char *const group_size_names[GROUP_SIZES] = {"under 4 KiB",     "4 KiB to 64 KiB",   "64 KiB to 1 MiB",
                                                          "1 MiB to 16 MiB", "16 MiB to 256 MiB", "256 MiB to 4 GiB",
                                                          "4 GiB or more"};

static uint32_t group_of_size(uint64_t bytes)
{
    uint32_t group = 0;
    for (uint64_t limit = 4096; group < GROUP_SIZES - 1 && bytes >= limit; limit *= 16)
        group++;
    return group;
}

/* --- call sites --- */

/* Returns whether a frame belongs to an allocator, and does not say which part of the program asked. */
static bool group_is_inner(const char *frame)
{
    static const char *const names[] = {
        "loch_",         "lochi_", "malloc", "calloc",        "realloc",
        "operator new",  "c10::",  "at::",   "torch::unwind", "torch::CapturedTraceback",
        "torch::cuda::", "cuda",   "std::",  "THPVariable_",  "gather_with_cpp"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strncmp(frame, names[i], strlen(names[i]))) return true;
    return false;
}

/* Finds the call site of each stack: its innermost frame outside of allocators. Equal sites get one number; 0 stands
 * for no stack. */
static bool group_find_sites(report_run *run)
{
    lochi_table found = {.mask = 0};
    const char *none = "";
    const size_t stacks = run->info.stacks;
    bool is_good = lochi_array_reserve(&run->sites, stacks + 1, sizeof(uint32_t)) &&
                   lochi_array_append(&run->site_names, &none, 1, sizeof none);
    for (uint32_t i = 0; is_good && i < stacks; i++) {
        size_t count, at = 0;
        const char *const *frames = loch_recording_get_stack(run->recording, i, &count);
        while (at + 1 < count && group_is_inner(frames[at]))
            at++;
        if (at + 1 == count && group_is_inner(frames[at])) at = 0;
        const char *site = count ? frames[at] : "";
        uint32_t number = *site ? lochi_table_find(&found, (uintptr_t)site) : 0; /* equal frames have one address */
        if (number == UINT32_MAX) {
            number = (uint32_t)run->site_names.count;
            is_good = lochi_table_set(&found, (uintptr_t)site, number) &&
                      lochi_array_append(&run->site_names, &site, 1, sizeof site);
        }
        ((uint32_t *)run->sites.data)[i] = number;
    }
    lochi_table_free(&found);
    return is_good;
}

uint32_t lochi_insight_report_group_of(const report_run *run, report_by by, const loch_recording_block *block)
{
    switch (by) {
    case REPORT_TAG: return block->tag;
    case REPORT_SITE: {
        const uint32_t stack = run->events[block->alloc_event].stack;
        return stack < run->info.stacks ? ((const uint32_t *)run->sites.data)[stack] : 0;
    }
    case REPORT_SIZE: return group_of_size(block->bytes);
    case REPORT_STREAM: return block->stream;
    default: return block->allocator;
    }
}

void lochi_insight_report_write_group(const report_run *run, report_by by, uint32_t group, FILE *file)
{
    char number[32];
    const char *name = "";
    switch (by) {
    case REPORT_TAG:
        name = loch_recording_get_name(run->recording, LOCH_RECORDING_TAG, group);
        if (!*name) name = "no tag";
        break;
    case REPORT_SITE: name = group ? ((const char *const *)run->site_names.data)[group] : "no call stack"; break;
    case REPORT_SIZE: name = group_size_names[group]; break;
    case REPORT_STREAM:
        snprintf(number, sizeof number, group ? "stream %u" : "default stream", (unsigned)group);
        name = number;
        break;
    default: name = loch_recording_get_name(run->recording, LOCH_RECORDING_ALLOCATOR, group); break;
    }
    lochi_insight_report_write_json(file, name);
}

/* --- bands --- */

typedef struct group_weight {
    uint64_t most, now;
    uint32_t group;
} group_weight;

static int group_compare(const void *left, const void *right)
{
    const group_weight *a = left, *b = right;
    if (a->most != b->most) return a->most < b->most ? 1 : -1;
    return a->group < b->group ? -1 : a->group > b->group;
}

static int group_compare_order(const void *left, const void *right)
{
    const group_weight *a = left, *b = right;
    return a->group < b->group ? -1 : a->group > b->group;
}

/* Weighs the groups of a grouping; the weights are in the order of the groups. */
static void group_weigh(const report_run *run, report_by by, uint64_t *bytes, group_weight *weights)
{
    for (size_t i = 0; i < run->info.events; i++) {
        const loch_recording_event *event = &run->events[i];
        const bool is_growing = event->kind == LOCH_RECORDED_ALLOC || event->kind == LOCH_RECORDED_RESIZE;
        if (!is_growing && event->kind != LOCH_RECORDED_FREE) continue;
        group_weight *weight = &weights[lochi_insight_report_group_of(run, by, &run->blocks[event->subject])];
        const uint64_t now = is_growing ? event->value : 0;
        weight->now += now - bytes[event->subject];
        bytes[event->subject] = now;
        if (weight->now > weight->most) weight->most = weight->now;
    }
}

/* Gives each group its band. Sizes stay in their order; others are in the order of their weight. */
static void group_divide(report_grouping *grouping, report_by by, group_weight *weights)
{
    uint32_t used = 0;
    qsort(weights, grouping->groups, sizeof *weights, group_compare);
    while (used < grouping->groups && weights[used].most)
        used++;
    if (by == REPORT_SIZE) qsort(weights, used, sizeof *weights, group_compare_order);
    uint8_t *bands = grouping->band_of.data;
    grouping->bands = used < REPORT_BANDS ? used : REPORT_BANDS;
    grouping->others = used > REPORT_BANDS ? used - REPORT_BANDS + 1 : 0;
    for (uint32_t i = 0; i < grouping->groups; i++) {
        const uint32_t band = i < REPORT_BANDS - 1 || used <= REPORT_BANDS ? i : REPORT_BANDS - 1;
        bands[weights[i].group] = (uint8_t)(i < used ? band : 0);
        if (i < grouping->bands) grouping->named[i] = weights[i].group;
    }
}

static bool group_make(report_run *run, report_by by, uint64_t groups)
{
    report_grouping *grouping = &run->groupings[by];
    lochi_array weights = {.data = NULL}, bytes = {.data = NULL};
    grouping->groups = (uint32_t)groups;
    bool is_good = lochi_array_reserve(&grouping->band_of, groups + 1, 1);
    if (is_good && groups > 1) {
        is_good = lochi_array_reserve(&weights, groups, sizeof(group_weight)) &&
                  lochi_array_reserve(&bytes, run->info.blocks + 1, sizeof(uint64_t));
        group_weight *all = weights.data;
        for (uint32_t i = 0; is_good && i < groups; i++)
            all[i].group = i;
        if (is_good) {
            group_weigh(run, by, bytes.data, all);
            group_divide(grouping, by, all);
        }
    }
    /* One band says nothing, except that there must be one grouping: sizes. */
    if (grouping->bands == 1 && by != REPORT_SIZE) grouping->bands = 0;
    lochi_array_free(&weights);
    lochi_array_free(&bytes);
    return is_good;
}

loch_status lochi_insight_report_group(report_run *run)
{
    const loch_recording_info *info = &run->info;
    const bool is_good = group_find_sites(run) && group_make(run, REPORT_TAG, info->tags) &&
                         group_make(run, REPORT_SITE, run->site_names.count) &&
                         group_make(run, REPORT_SIZE, GROUP_SIZES) && group_make(run, REPORT_STREAM, info->streams) &&
                         group_make(run, REPORT_ALLOCATOR, info->allocators);
    return is_good ? LOCH_OK : lochi_insight_no_memory(info->path);
}
