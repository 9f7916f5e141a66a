/* SPDX-License-Identifier: MIT */
/* Prints the figures of a recording: as a page for people, or as JSON with exact numbers. */
#include "format.h"
#include "print.h"
#include "stats.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PRINT_ROWS_MAX 12  /* rows of a table for people; JSON has all of them */
#define PRINT_FRAMES_MAX 3 /* frames of a call site in one row */
#define PRINT_SITE_MAX 96  /* letters of a call site in one row */
#define PRINT_BAR 24       /* letters of a bar */

/* What a file is, by its format. The others are not read. */
static const char *const print_formats[] = {
    [LOCH_RECORDING_AUTO] = "",
    [LOCH_RECORDING_TEXT] = "trace",
    [LOCH_RECORDING_BINARY] = "recording",
    [LOCH_RECORDING_TORCH] = "memory snapshot of PyTorch",
    [LOCH_RECORDING_CHROME] = "",
    [LOCH_RECORDING_FOLDED] = "",
    [LOCH_RECORDING_METRICS] = "",
    [LOCH_RECORDING_SNAPSHOT] = "snapshot of a program",
};

static double print_share(uint64_t part, uint64_t all)
{
    return all ? 100 * (double)part / (double)all : 0;
}

static const char *print_plural(uint64_t count)
{
    return count == 1 ? "" : "s";
}

/* --- the page --- */

static void page_head(lochi_text *out, const insight_stats *stats)
{
    char a[INSIGHT_FIGURE_MAX], b[INSIGHT_FIGURE_MAX];
    const loch_recording_info *info = &stats->info;
    lochi_text_write_name(out, info->path);
    lochi_text_write(out, ", a %s\n", print_formats[info->format]);
    if (info->program && *info->program) {
        lochi_text_write(out, "  %-18s ", "program");
        lochi_text_write_name(out, info->program);
        lochi_text_write(out, "\n");
    }
    lochi_text_write(out, "  %-18s %s in %s", "events", lochi_insight_figure_number(info->events, a),
                     lochi_insight_figure_time(info->duration_ns, b));
    lochi_text_write(out, ", %" PRIu64 " thread%s, %" PRIu64 " stream%s\n", info->threads, print_plural(info->threads),
                     info->streams, print_plural(info->streams));
    lochi_text_write(out, "  %-18s %s", "blocks", lochi_insight_figure_number(info->blocks, a));
    if (stats->counts[LOCH_RECORDED_RESIZE])
        lochi_text_write(out, ", %s resized", lochi_insight_figure_number(stats->counts[LOCH_RECORDED_RESIZE], a));
    if (stats->counts[LOCH_RECORDED_MOVE])
        lochi_text_write(out, ", %s moved", lochi_insight_figure_number(stats->counts[LOCH_RECORDED_MOVE], a));
    lochi_text_write(out, "\n");
    if (stats->counts[LOCH_RECORDED_FAIL])
        lochi_text_write(out, "  %-18s %s requests failed\n", "failures",
                         lochi_insight_figure_number(stats->counts[LOCH_RECORDED_FAIL], a));
    if (info->lost || info->unknown)
        lochi_text_write(out, "  %-18s %s events lost by the recorder, %s of blocks that are not recorded\n", "missing",
                         lochi_insight_figure_number(info->lost, a), lochi_insight_figure_number(info->unknown, b));
}

static void page_peaks(lochi_text *out, const insight_stats *stats)
{
    char a[INSIGHT_FIGURE_MAX], b[INSIGHT_FIGURE_MAX], c[INSIGHT_FIGURE_MAX];
    const loch_recording_info *info = &stats->info;
    lochi_text_write(out, "  %-18s %s (%s bytes) at %s, %.0f %% of the time\n", "peak requested",
                     lochi_insight_figure_bytes(info->peak_requested, a),
                     lochi_insight_figure_number(info->peak_requested, b), lochi_insight_figure_time(stats->peak_ns, c),
                     print_share(stats->peak_ns, info->duration_ns));
    if (info->peak_reserved)
        lochi_text_write(out, "  %-18s %s (%s bytes)\n", "peak reserved",
                         lochi_insight_figure_bytes(info->peak_reserved, a),
                         lochi_insight_figure_number(info->peak_reserved, b));
    if (lochi_insight_stats_fragmentation(stats) >= 0)
        lochi_text_write(out, "  %-18s %.2f %% of %s reserved at the peak was not requested\n", "fragmentation",
                         100 * lochi_insight_stats_fragmentation(stats),
                         lochi_insight_figure_bytes(stats->reserved_at_peak, a));
    lochi_text_write(out, "  %-18s %s block%s, %s\n", "live at the end",
                     lochi_insight_figure_number(info->live_blocks, a), print_plural(info->live_blocks),
                     lochi_insight_figure_bytes(info->live_bytes, b));
}

/* Draws memory over time as one line of bars. */
static void page_columns(lochi_text *out, const insight_stats *stats)
{
    static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    char a[INSIGHT_FIGURE_MAX];
    if (!stats->info.peak_requested) return;
    lochi_text_write(out, "\nRequested memory over time\n  ");
    for (size_t i = 0; i < INSIGHT_COLUMNS; i++) {
        const double part = (double)stats->columns[i] / (double)stats->info.peak_requested;
        const size_t level = stats->columns[i] ? 1 + (size_t)(part * 7.5) : 0;
        lochi_text_write(out, "%s", bars[level > 8 ? 8 : level]);
    }
    lochi_text_write(out, "  %s\n", lochi_insight_figure_bytes(stats->info.peak_requested, a));
}

/* Formats a call site: the innermost frames. Returns `text`. */
static const char *page_site(const loch_recording *recording, uint32_t stack, char text[PRINT_SITE_MAX + 1])
{
    size_t count, length = 0;
    const char *const *frames = loch_recording_get_stack(recording, stack, &count);
    *text = 0;
    for (size_t i = 0; i < count && i < PRINT_FRAMES_MAX && length < PRINT_SITE_MAX; i++) {
        const int added = snprintf(text + length, PRINT_SITE_MAX + 1 - length, "%s%s", i ? " < " : "", frames[i]);
        length = added > 0 ? length + (size_t)added : length;
    }
    if (!count) snprintf(text, PRINT_SITE_MAX + 1, "(no call stack)");
    return text;
}

static const char *page_tag(const loch_recording *recording, uint32_t tag)
{
    return tag ? loch_recording_get_name(recording, LOCH_RECORDING_TAG, tag) : "(no tag)";
}

static void page_groups(lochi_text *out, const loch_recording *recording, const lochi_array *array, uint64_t bytes,
                        const char *title, const char *noun)
{
    const insight_group *groups = array->data;
    char a[INSIGHT_FIGURE_MAX], b[INSIGHT_FIGURE_MAX], site[PRINT_SITE_MAX + 1];
    const bool is_tag = !strcmp(noun, "tag");
    uint64_t rest_blocks = 0, rest_bytes = 0;
    if (!array->count || (array->count == 1 && groups[0].key == (is_tag ? 0 : LOCH_RECORDING_NONE))) return;
    lochi_text_write(out, "\n%s\n  %12s %7s %11s  %s\n", title, "bytes", "share", "blocks", noun);
    for (size_t i = 0; i < array->count; i++) {
        if (i >= PRINT_ROWS_MAX) {
            rest_blocks += groups[i].blocks;
            rest_bytes += groups[i].bytes;
            continue;
        }
        lochi_text_write(out, "  %12s %5.1f %% %11s  ", lochi_insight_figure_bytes(groups[i].bytes, a),
                         print_share(groups[i].bytes, bytes), lochi_insight_figure_number(groups[i].blocks, b));
        lochi_text_write_name(out,
                              is_tag ? page_tag(recording, groups[i].key) : page_site(recording, groups[i].key, site));
        lochi_text_write(out, "\n");
    }
    if (rest_blocks)
        lochi_text_write(out, "  %12s %5.1f %% %11s  (%zu more)\n", lochi_insight_figure_bytes(rest_bytes, a),
                         print_share(rest_bytes, bytes), lochi_insight_figure_number(rest_blocks, b),
                         array->count - PRINT_ROWS_MAX);
}

static void page_largest(lochi_text *out, const loch_recording *recording, const insight_live *live, const char *title)
{
    char a[INSIGHT_FIGURE_MAX], b[INSIGHT_FIGURE_MAX], c[INSIGHT_FIGURE_MAX], site[PRINT_SITE_MAX + 1];
    if (!live->largest_count) return;
    lochi_text_write(out, "\n%s\n  %12s %12s %12s  %s\n", title, "bytes", "since", "lives", "block");
    for (size_t i = 0; i < live->largest_count; i++) {
        const loch_recording_block *block = loch_recording_get_blocks(recording) + live->largest[i].block;
        const loch_recording_event *events = loch_recording_get_events(recording);
        const loch_recording_event *start = &events[block->alloc_event];
        const uint64_t end_ns =
            block->free_event == LOCH_RECORDING_NONE ? start->time_ns : events[block->free_event].time_ns;
        lochi_text_write(out, "  %12s %12s %12s  %" PRIu64, lochi_insight_figure_bytes(live->largest[i].bytes, a),
                         block->is_present ? "the start" : lochi_insight_figure_time(start->time_ns, b),
                         block->free_event == LOCH_RECORDING_NONE
                             ? "to the end"
                             : lochi_insight_figure_time(end_ns - start->time_ns, c),
                         block->id);
        lochi_text_write(out, "%s", block->tag ? " " : "");
        if (block->tag) lochi_text_write_name(out, page_tag(recording, block->tag));
        lochi_text_write(out, "%s", start->stack != LOCH_RECORDING_NONE ? ", " : "");
        if (start->stack != LOCH_RECORDING_NONE) lochi_text_write_name(out, page_site(recording, start->stack, site));
        lochi_text_write(out, "\n");
    }
}

static void page_calls(lochi_text *out, const loch_recording *recording, const insight_stats *stats)
{
    const insight_call *calls = stats->calls.data;
    char a[INSIGHT_FIGURE_MAX], b[INSIGHT_FIGURE_MAX], c[INSIGHT_FIGURE_MAX], d[INSIGHT_FIGURE_MAX];
    if (!stats->calls.count) return;
    lochi_text_write(out, "\nDriver calls: %s, %s, %.2f %% of the time\n  %12s %12s %12s %12s  call\n",
                     lochi_insight_figure_number(stats->calls_count, a), lochi_insight_figure_time(stats->calls_ns, b),
                     print_share(stats->calls_ns, stats->info.duration_ns), "time", "calls", "mean", "longest");
    for (size_t i = 0; i < stats->calls.count; i++) {
        lochi_text_write(out, "  %12s %12s %12s %12s  ", lochi_insight_figure_time(calls[i].ns, a),
                         lochi_insight_figure_number(calls[i].count, b),
                         lochi_insight_figure_time(calls[i].ns / calls[i].count, c),
                         lochi_insight_figure_time(calls[i].longest_ns, d));
        lochi_text_write_name(out, loch_recording_get_name(recording, LOCH_RECORDING_CALL, calls[i].call));
        lochi_text_write(out, "\n");
    }
}

/* Removes the zeros behind the point of a round figure: "100.0 us" becomes "100 us". Returns `text`. */
static const char *page_trim(char *text)
{
    char *point = strchr(text, '.'), *end = point;
    if (!point) return text;
    for (end++; *end == '0';)
        end++;
    if (*end == ' ') memmove(point, end, strlen(end) + 1);
    return text;
}

/* Prints a histogram, from its first to its last bucket that is not empty. */
static void page_buckets(lochi_text *out, const insight_bucket *buckets, const uint64_t *bounds, bool is_time)
{
    char a[INSIGHT_FIGURE_MAX], b[INSIGHT_FIGURE_MAX], c[INSIGHT_FIGURE_MAX], bar[PRINT_BAR + 1];
    uint64_t most = 0;
    size_t first = INSIGHT_BUCKETS, last = 0;
    for (size_t i = 0; i < INSIGHT_BUCKETS; i++) {
        if (!buckets[i].count) continue;
        if (first == INSIGHT_BUCKETS) first = i;
        last = i;
        if (buckets[i].count > most) most = buckets[i].count;
    }
    if (!most) return;
    lochi_text_write(out, "\n%s\n  %14s %11s %12s\n", is_time ? "Lifetimes of freed blocks" : "Sizes of blocks",
                     is_time ? "shorter than" : "smaller than", "blocks", "bytes");
    for (size_t i = first; i <= last; i++) {
        const size_t length = (size_t)((double)buckets[i].count / (double)most * PRINT_BAR + 0.5);
        memset(bar, '#', length);
        bar[length] = 0;
        if (is_time)
            lochi_insight_figure_time(bounds[i], a);
        else
            lochi_insight_figure_bytes(bounds[i], a);
        const char *bound = bounds[i] == UINT64_MAX ? "more" : page_trim(a);
        lochi_text_write(out, "  %14s %11s %12s%s%s\n", bound, lochi_insight_figure_number(buckets[i].count, b),
                         lochi_insight_figure_bytes(buckets[i].bytes, c), length ? "  " : "", bar);
    }
}

static void page_print(lochi_text *out, const loch_recording *recording, const insight_stats *stats)
{
    page_head(out, stats);
    page_peaks(out, stats);
    page_columns(out, stats);
    page_groups(out, recording, &stats->peak.tags, stats->peak.bytes, "Live at the peak, by tag", "tag");
    page_groups(out, recording, &stats->peak.stacks, stats->peak.bytes, "Live at the peak, by call site", "call site");
    page_largest(out, recording, &stats->peak, "Largest blocks at the peak");
    page_groups(out, recording, &stats->end.tags, stats->end.bytes, "Live at the end, by tag", "tag");
    page_groups(out, recording, &stats->end.stacks, stats->end.bytes, "Live at the end, by call site", "call site");
    page_largest(out, recording, &stats->end, "Largest blocks at the end");
    page_calls(out, recording, stats);
    page_buckets(out, stats->lifetimes, lochi_insight_lifetime_bounds, true);
    page_buckets(out, stats->sizes, lochi_insight_size_bounds, false);
}

/* --- JSON --- */

static void json_number(lochi_text *out, const char *name, uint64_t value)
{
    lochi_text_write(out, "\"%s\": %" PRIu64 ", ", name, value);
}

static void json_text(lochi_text *out, const char *name, const char *text)
{
    lochi_text_write(out, "\"%s\": ", name);
    lochi_text_write_json(out, text);
    lochi_text_write(out, ", ");
}

static void json_stack(lochi_text *out, const loch_recording *recording, uint32_t stack)
{
    size_t count;
    const char *const *frames = loch_recording_get_stack(recording, stack, &count);
    lochi_text_write(out, "\"stack\": [");
    for (size_t i = 0; i < count; i++) {
        lochi_text_write(out, "%s", i ? ", " : "");
        lochi_text_write_json(out, frames[i]);
    }
    lochi_text_write(out, "]");
}

static void json_live(lochi_text *out, const loch_recording *recording, const insight_live *live)
{
    const insight_group *tags = live->tags.data, *stacks = live->stacks.data;
    lochi_text_write(out, "{");
    json_number(out, "blocks", live->blocks);
    json_number(out, "bytes", live->bytes);
    lochi_text_write(out, "\"tags\": [");
    for (size_t i = 0; i < live->tags.count; i++) {
        lochi_text_write(out, "%s{", i ? ", " : "");
        json_text(out, "tag", loch_recording_get_name(recording, LOCH_RECORDING_TAG, tags[i].key));
        lochi_text_write(out, "\"bytes\": %" PRIu64 ", \"blocks\": %" PRIu64 "}", tags[i].bytes, tags[i].blocks);
    }
    lochi_text_write(out, "], \"call_sites\": [");
    for (size_t i = 0; i < live->stacks.count; i++) {
        lochi_text_write(out, "%s{\"bytes\": %" PRIu64 ", \"blocks\": %" PRIu64 ", ", i ? ", " : "", stacks[i].bytes,
                         stacks[i].blocks);
        json_stack(out, recording, stacks[i].key);
        lochi_text_write(out, "}");
    }
    lochi_text_write(out, "], \"largest\": [");
    for (size_t i = 0; i < live->largest_count; i++) {
        const loch_recording_block *block = loch_recording_get_blocks(recording) + live->largest[i].block;
        const loch_recording_event *event = loch_recording_get_events(recording) + block->alloc_event;
        lochi_text_write(out, "%s{", i ? ", " : "");
        json_number(out, "block", block->id);
        json_number(out, "bytes", live->largest[i].bytes);
        json_number(out, "time_ns", event->time_ns);
        json_text(out, "tag", loch_recording_get_name(recording, LOCH_RECORDING_TAG, block->tag));
        json_text(out, "allocator", loch_recording_get_name(recording, LOCH_RECORDING_ALLOCATOR, block->allocator));
        json_stack(out, recording, event->stack);
        lochi_text_write(out, "}");
    }
    lochi_text_write(out, "]}");
}

static void json_buckets(lochi_text *out, const char *name, const char *bound, const insight_bucket *buckets,
                         const uint64_t *bounds)
{
    lochi_text_write(out, "\"%s\": [", name);
    for (size_t i = 0; i < INSIGHT_BUCKETS; i++) {
        lochi_text_write(out, "%s{\"%s\": ", i ? ", " : "", bound);
        if (bounds[i] == UINT64_MAX)
            lochi_text_write(out, "null");
        else
            lochi_text_write(out, "%" PRIu64, bounds[i]);
        lochi_text_write(out, ", \"blocks\": %" PRIu64 ", \"bytes\": %" PRIu64 "}", buckets[i].count, buckets[i].bytes);
    }
    lochi_text_write(out, "]");
}

static void json_print(lochi_text *out, const loch_recording *recording, const insight_stats *stats)
{
    static const char *const kinds[INSIGHT_KINDS] = {"allocs", "frees", "uses",   "resizes", "moves",   "takes",
                                                     "gives",  "calls", "sleeps", "wakes",   "failures"};
    const loch_recording_info *info = &stats->info;
    const insight_call *calls = stats->calls.data;
    lochi_text_write(out, "{");
    json_text(out, "path", info->path);
    json_text(out, "format", print_formats[info->format]);
    json_text(out, "program", info->program ? info->program : "");
    json_number(out, "events", info->events);
    json_number(out, "blocks", info->blocks);
    json_number(out, "threads", info->threads);
    json_number(out, "streams", info->streams);
    json_number(out, "duration_ns", info->duration_ns);
    json_number(out, "started_ns", info->started_ns);
    json_number(out, "lost", info->lost);
    json_number(out, "unknown", info->unknown);
    for (size_t i = 0; i < INSIGHT_KINDS; i++)
        json_number(out, kinds[i], stats->counts[i]);
    json_number(out, "peak_requested", info->peak_requested);
    json_number(out, "peak_event", info->peak_event);
    json_number(out, "peak_time_ns", stats->peak_ns);
    json_number(out, "peak_reserved", info->peak_reserved);
    json_number(out, "reserved_at_peak", stats->reserved_at_peak);
    if (lochi_insight_stats_fragmentation(stats) < 0)
        lochi_text_write(out, "\"fragmentation\": null, ");
    else
        lochi_text_write(out, "\"fragmentation\": %.6f, ", lochi_insight_stats_fragmentation(stats));
    lochi_text_write(out, "\"at_peak\": ");
    json_live(out, recording, &stats->peak);
    lochi_text_write(out, ", \"at_end\": ");
    json_live(out, recording, &stats->end);
    lochi_text_write(out, ", ");
    json_number(out, "driver_calls_ns", stats->calls_ns);
    lochi_text_write(out, "\"driver_calls\": [");
    for (size_t i = 0; i < stats->calls.count; i++) {
        lochi_text_write(out, "%s{", i ? ", " : "");
        json_text(out, "call", loch_recording_get_name(recording, LOCH_RECORDING_CALL, calls[i].call));
        lochi_text_write(out, "\"calls\": %" PRIu64 ", \"ns\": %" PRIu64 ", \"longest_ns\": %" PRIu64 "}",
                         calls[i].count, calls[i].ns, calls[i].longest_ns);
    }
    lochi_text_write(out, "], ");
    json_buckets(out, "lifetimes", "shorter_than_ns", stats->lifetimes, lochi_insight_lifetime_bounds);
    lochi_text_write(out, ", ");
    json_buckets(out, "sizes", "smaller_than", stats->sizes, lochi_insight_size_bounds);
    lochi_text_write(out, "}\n");
}

loch_status loch_recording_print(const loch_recording *recording, loch_format format, char *text, size_t bytes,
                                 size_t *length)
{
    lochi_text out;
    insight_stats stats;
    LOCH_RETURN(lochi_insight_text_begin(recording, format, text, bytes, length, &out));
    const bool is_good = lochi_insight_stats_compute(recording, &stats);
    if (is_good && format == LOCH_FORMAT_JSON)
        json_print(&out, recording, &stats);
    else if (is_good)
        page_print(&out, recording, &stats);
    lochi_insight_stats_free(&stats);
    return is_good ? lochi_printing_end(&out, length) : lochi_insight_no_memory(recording->info.path);
}
