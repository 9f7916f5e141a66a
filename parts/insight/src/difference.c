/* SPDX-License-Identifier: MIT */
/* Prints what differs between two recordings. Tags, call sites and driver calls are matched by their names. */
#include "format.h"
#include "print.h"
#include "stats.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIFFERENCE_ROWS_MAX 12  /* rows of a table for people; JSON has all of them */
#define DIFFERENCE_FRAMES_MAX 3 /* frames of a call site in one row */

/* A row of one table: the same thing before and after. */
typedef struct difference_row {
    const loch_recording *recording; /* that has its name */
    uint32_t key;
    uint64_t before, after;             /* bytes, or nanoseconds */
    uint64_t before_count, after_count; /* blocks, or calls */
} difference_row;

typedef enum difference_noun { DIFFERENCE_TAG, DIFFERENCE_SITE, DIFFERENCE_CALL } difference_noun;

typedef struct difference {
    const loch_recording *before, *after;
    insight_stats stats[2];
    lochi_array rows;   /* of difference_row: the present table */
    lochi_table places; /* hash of a name -> row */
} difference;

/* --- matching --- */

static uint64_t difference_hash(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return (hash ^ 0xff) * 0x100000001b3u;
}

/* Makes one number of the name of a row: equal names have equal numbers in both recordings. */
static uint64_t difference_key(const loch_recording *recording, difference_noun noun, uint32_t key)
{
    uint64_t hash = 0xcbf29ce484222325u;
    size_t count;
    if (noun != DIFFERENCE_SITE)
        return difference_hash(
            hash,
            loch_recording_get_name(recording, noun == DIFFERENCE_TAG ? LOCH_RECORDING_TAG : LOCH_RECORDING_CALL, key));
    const char *const *frames = loch_recording_get_stack(recording, key, &count);
    for (size_t i = 0; i < count; i++)
        hash = difference_hash(hash, frames[i]);
    return hash;
}

static bool difference_add(difference *all, difference_noun noun, size_t side, uint32_t key, uint64_t value,
                           uint64_t number)
{
    const loch_recording *recording = side ? all->after : all->before;
    const uint64_t hash = difference_key(recording, noun, key);
    uint32_t place = lochi_table_find(&all->places, hash);
    if (place == UINT32_MAX) {
        const difference_row row = {.recording = recording, .key = key};
        place = (uint32_t)all->rows.count;
        if (!lochi_array_append(&all->rows, &row, 1, sizeof row) || !lochi_table_set(&all->places, hash, place))
            return false;
    }
    difference_row *row = (difference_row *)all->rows.data + place;
    *(side ? &row->after : &row->before) += value;
    *(side ? &row->after_count : &row->before_count) += number;
    return true;
}

static uint64_t difference_size(const difference_row *row)
{
    return row->after > row->before ? row->after - row->before : row->before - row->after;
}

static int difference_compare(const void *a, const void *b)
{
    const difference_row *x = a, *y = b;
    if (difference_size(x) != difference_size(y)) return difference_size(x) > difference_size(y) ? -1 : 1;
    if (x->after != y->after) return x->after > y->after ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* Collects the rows of one table, the largest difference first. Returns false if there is no memory. */
static bool difference_collect(difference *all, difference_noun noun)
{
    all->rows.count = 0;
    lochi_table_free(&all->places);
    for (size_t side = 0; side < 2; side++) {
        const insight_stats *stats = &all->stats[side];
        const lochi_array *groups = noun == DIFFERENCE_TAG ? &stats->peak.tags : &stats->peak.stacks;
        const size_t count = noun == DIFFERENCE_CALL ? stats->calls.count : groups->count;
        for (size_t i = 0; i < count; i++) {
            const insight_group *group = (const insight_group *)groups->data + i;
            const insight_call *call = (const insight_call *)stats->calls.data + i;
            const bool is_good = noun == DIFFERENCE_CALL
                                     ? difference_add(all, noun, side, call->call, call->ns, call->count)
                                     : difference_add(all, noun, side, group->key, group->bytes, group->blocks);
            if (!is_good) return false;
        }
    }
    if (all->rows.count) qsort(all->rows.data, all->rows.count, sizeof(difference_row), difference_compare);
    return true;
}

/* --- the page --- */

typedef const char *difference_figure(uint64_t value, char text[INSIGHT_FIGURE_MAX]);
typedef const char *difference_figure_step(uint64_t before, uint64_t after, char text[INSIGHT_FIGURE_MAX]);

/* Adds the change in percent, if there is one. */
static void page_percent(lochi_text *out, uint64_t before, uint64_t after)
{
    if (before && before != after)
        lochi_text_write(out, " %+8.1f %%", 100 * ((double)after - (double)before) / (double)before);
    else
        lochi_text_write(out, " %10s", "");
}

static void page_figure(lochi_text *out, const char *name, uint64_t before, uint64_t after, difference_figure *figure,
                        difference_figure_step *step)
{
    char a[INSIGHT_FIGURE_MAX], b[INSIGHT_FIGURE_MAX], c[INSIGHT_FIGURE_MAX];
    if (!before && !after) return;
    lochi_text_write(out, "  %-18s %14s %14s %15s", name, figure(before, a), figure(after, b), step(before, after, c));
    if (before && before != after)
        lochi_text_write(out, " %+8.1f %%", 100 * ((double)after - (double)before) / (double)before);
    lochi_text_write(out, "\n");
}

static void page_figures(lochi_text *out, const difference *all)
{
    const insight_stats *x = &all->stats[0], *y = &all->stats[1];
    const double before = lochi_insight_stats_fragmentation(x), after = lochi_insight_stats_fragmentation(y);
    lochi_text_write(out, "before  ");
    lochi_text_write_name(out, x->info.path);
    lochi_text_write(out, "\nafter   ");
    lochi_text_write_name(out, y->info.path);
    lochi_text_write(out, "\n\nFigures\n");
    lochi_text_write(out, "  %-18s %14s %14s %15s\n", "", "before", "after", "difference");
    page_figure(out, "peak requested", x->info.peak_requested, y->info.peak_requested, lochi_insight_figure_bytes,
                lochi_insight_figure_bytes_step);
    page_figure(out, "peak reserved", x->info.peak_reserved, y->info.peak_reserved, lochi_insight_figure_bytes,
                lochi_insight_figure_bytes_step);
    if (before >= 0 && after >= 0) {
        char points[INSIGHT_FIGURE_MAX] = "0";
        if (before < after || before > after) snprintf(points, sizeof points, "%+.2f points", 100 * (after - before));
        lochi_text_write(out, "  %-18s %12.2f %% %12.2f %% %15s\n", "fragmentation", 100 * before, 100 * after, points);
    }
    page_figure(out, "live at the end", x->info.live_bytes, y->info.live_bytes, lochi_insight_figure_bytes,
                lochi_insight_figure_bytes_step);
    page_figure(out, "blocks at the end", x->info.live_blocks, y->info.live_blocks, lochi_insight_figure_number,
                lochi_insight_figure_number_step);
    page_figure(out, "allocations", x->counts[LOCH_RECORDED_ALLOC], y->counts[LOCH_RECORDED_ALLOC],
                lochi_insight_figure_number, lochi_insight_figure_number_step);
    page_figure(out, "events", x->info.events, y->info.events, lochi_insight_figure_number,
                lochi_insight_figure_number_step);
    page_figure(out, "failures", x->counts[LOCH_RECORDED_FAIL], y->counts[LOCH_RECORDED_FAIL],
                lochi_insight_figure_number, lochi_insight_figure_number_step);
    page_figure(out, "driver calls", x->calls_count, y->calls_count, lochi_insight_figure_number,
                lochi_insight_figure_number_step);
    page_figure(out, "driver time", x->calls_ns, y->calls_ns, lochi_insight_figure_time,
                lochi_insight_figure_time_step);
    page_figure(out, "duration", x->info.duration_ns, y->info.duration_ns, lochi_insight_figure_time,
                lochi_insight_figure_time_step);
}

static void page_name(lochi_text *out, const difference_row *row, difference_noun noun)
{
    size_t count;
    const char *const *frames = loch_recording_get_stack(row->recording, row->key, &count);
    if (noun == DIFFERENCE_SITE) {
        for (size_t i = 0; i < count && i < DIFFERENCE_FRAMES_MAX; i++) {
            char frame[61];
            snprintf(frame, sizeof frame, "%s", frames[i]);
            lochi_text_write(out, "%s", i ? " < " : "");
            lochi_text_write_name(out, frame);
        }
        if (!count) lochi_text_write(out, "(no call stack)");
        return;
    }
    const char *name = loch_recording_get_name(
        row->recording, noun == DIFFERENCE_TAG ? LOCH_RECORDING_TAG : LOCH_RECORDING_CALL, row->key);
    lochi_text_write_name(out, noun == DIFFERENCE_TAG && !row->key ? "(no tag)" : name);
}

static void page_table(lochi_text *out, const difference *all, difference_noun noun)
{
    static const char *const titles[] = {"Live at the peak, by tag", "Live at the peak, by call site",
                                         "Time in driver calls"};
    static const char *const nouns[] = {"tag", "call site", "call"};
    const difference_row *rows = all->rows.data;
    char a[INSIGHT_FIGURE_MAX], b[INSIGHT_FIGURE_MAX], c[INSIGHT_FIGURE_MAX];
    const bool is_call = noun == DIFFERENCE_CALL;
    const uint32_t none = noun == DIFFERENCE_TAG ? 0 : LOCH_RECORDING_NONE;
    if (!all->rows.count || (!is_call && all->rows.count == 1 && rows[0].key == none)) return;
    lochi_text_write(out, "\n%s\n  %14s %14s %15s %10s  %s\n", titles[noun], "before", "after", "difference", "",
                     nouns[noun]);
    for (size_t i = 0; i < all->rows.count && i < DIFFERENCE_ROWS_MAX; i++) {
        const difference_row *row = &rows[i];
        lochi_text_write(out, "  %14s %14s %15s",
                         is_call ? lochi_insight_figure_time(row->before, a)
                                 : lochi_insight_figure_bytes(row->before, a),
                         is_call ? lochi_insight_figure_time(row->after, b) : lochi_insight_figure_bytes(row->after, b),
                         is_call ? lochi_insight_figure_time_step(row->before, row->after, c)
                                 : lochi_insight_figure_bytes_step(row->before, row->after, c));
        page_percent(out, row->before, row->after);
        lochi_text_write(out, "  ");
        page_name(out, row, noun);
        lochi_text_write(out, "\n");
    }
    if (all->rows.count > DIFFERENCE_ROWS_MAX)
        lochi_text_write(out, "  (%zu more)\n", all->rows.count - DIFFERENCE_ROWS_MAX);
}

/* --- JSON --- */

static void json_figures(lochi_text *out, const char *name, const insight_stats *stats)
{
    lochi_text_write(out, "\"%s\": {\"path\": ", name);
    lochi_text_write_json(out, stats->info.path);
    lochi_text_write(out,
                     ", \"peak_requested\": %" PRIu64 ", \"peak_reserved\": %" PRIu64 ", \"reserved_at_peak\": %" PRIu64
                     ", \"live_bytes\": %" PRIu64 ", \"live_blocks\": %" PRIu64 ", \"allocs\": %" PRIu64
                     ", \"events\": %" PRIu64 ", \"failures\": %" PRIu64 ", \"driver_calls\": %" PRIu64
                     ", \"driver_calls_ns\": %" PRIu64 ", \"duration_ns\": %" PRIu64 "}, ",
                     stats->info.peak_requested, stats->info.peak_reserved, stats->reserved_at_peak,
                     stats->info.live_bytes, stats->info.live_blocks, stats->counts[LOCH_RECORDED_ALLOC],
                     stats->info.events, stats->counts[LOCH_RECORDED_FAIL], stats->calls_count, stats->calls_ns,
                     stats->info.duration_ns);
}

static void json_name(lochi_text *out, const difference_row *row, difference_noun noun)
{
    size_t count;
    if (noun != DIFFERENCE_SITE) {
        lochi_text_write_json(
            out, loch_recording_get_name(row->recording,
                                         noun == DIFFERENCE_TAG ? LOCH_RECORDING_TAG : LOCH_RECORDING_CALL, row->key));
        return;
    }
    const char *const *frames = loch_recording_get_stack(row->recording, row->key, &count);
    lochi_text_write(out, "[");
    for (size_t i = 0; i < count; i++) {
        lochi_text_write(out, "%s", i ? ", " : "");
        lochi_text_write_json(out, frames[i]);
    }
    lochi_text_write(out, "]");
}

static void json_table(lochi_text *out, const difference *all, difference_noun noun)
{
    static const char *const tables[] = {"tags", "call_sites", "driver_calls"};
    static const char *const names[] = {"tag", "stack", "call"};
    static const char *const units[] = {"bytes", "bytes", "ns"};
    static const char *const counts[] = {"blocks", "blocks", "calls"};
    const difference_row *rows = all->rows.data;
    lochi_text_write(out, "\"%s\": [", tables[noun]);
    for (size_t i = 0; i < all->rows.count; i++) {
        lochi_text_write(out, "%s{\"%s\": ", i ? ", " : "", names[noun]);
        json_name(out, &rows[i], noun);
        lochi_text_write(out,
                         ", \"before_%s\": %" PRIu64 ", \"after_%s\": %" PRIu64 ", \"before_%s\": %" PRIu64
                         ", \"after_%s\": %" PRIu64 "}",
                         units[noun], rows[i].before, units[noun], rows[i].after, counts[noun], rows[i].before_count,
                         counts[noun], rows[i].after_count);
    }
    lochi_text_write(out, noun == DIFFERENCE_CALL ? "]}\n" : "], ");
}

/* --- the whole --- */

static bool difference_print(difference *all, loch_format format, lochi_text *out)
{
    if (!lochi_insight_stats_compute(all->before, &all->stats[0]) ||
        !lochi_insight_stats_compute(all->after, &all->stats[1]))
        return false;
    if (format == LOCH_FORMAT_TEXT) {
        page_figures(out, all);
    } else {
        lochi_text_write(out, "{");
        json_figures(out, "before", &all->stats[0]);
        json_figures(out, "after", &all->stats[1]);
    }
    for (int noun = DIFFERENCE_TAG; noun <= DIFFERENCE_CALL; noun++) {
        if (!difference_collect(all, (difference_noun)noun)) return false;
        if (format == LOCH_FORMAT_TEXT)
            page_table(out, all, (difference_noun)noun);
        else
            json_table(out, all, (difference_noun)noun);
    }
    return true;
}

loch_status loch_recording_print_difference(const loch_recording *before, const loch_recording *after,
                                            loch_format format, char *text, size_t bytes, size_t *length)
{
    lochi_text out;
    difference all = {.before = before, .after = after};
    LOCH_RETURN(lochi_insight_text_begin(before && after ? before : NULL, format, text, bytes, length, &out));
    const bool is_good = difference_print(&all, format, &out);
    lochi_insight_stats_free(&all.stats[0]);
    lochi_insight_stats_free(&all.stats[1]);
    lochi_array_free(&all.rows);
    lochi_table_free(&all.places);
    return is_good ? lochi_printing_end(&out, length) : lochi_insight_no_memory(before->info.path);
}
