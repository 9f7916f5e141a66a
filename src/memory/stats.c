/* SPDX-License-Identifier: MIT */
/* Statistics: sum, text and JSON, all made from one list. */
#include "base/fail.h"
#include "kit/text.h"
#include "memory/format.h"
#include <loch/stats.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#define STATS_ADD(a, b) ((a) + (b))
#define STATS_MAX(a, b) ((a) > (b) ? (a) : (b))
#define STATS_LIMIT(a, b) ((a) && (b) ? (a) + (b) : 0) /* no limit plus anything is no limit */

void loch_stats_add(loch_stats *a, const loch_stats *b)
{
#define STATS_SUM(name, sum, text) a->name = STATS_##sum(a->name, b->name);
    LOCH_STATS_LIST(STATS_SUM)
#undef STATS_SUM
}

double loch_stats_fragmentation(const loch_stats *stats)
{
    if (!stats->blocks) return 0; /* nothing lies between free pieces */
    if (!stats->cached_bytes || stats->largest_free_bytes >= stats->cached_bytes) return 0;
    return 1 - (double)stats->largest_free_bytes / (double)stats->cached_bytes;
}

uint64_t loch_histogram_percentile(const loch_histogram *histogram, double fraction)
{
    if (!histogram->count) return 0;
    const double wanted = fraction * (double)histogram->count;
    double seen = 0;
    for (int i = 0; i < 64; i++) {
        const double here = (double)histogram->buckets[i];
        if (here > 0 && seen + here >= wanted) {
            const double low = i ? (double)((uint64_t)1 << (i - 1)) : 0, high = (double)((uint64_t)1 << i);
            const double part = wanted > seen ? (wanted - seen) / here : 0;
            return (uint64_t)(low + part * (high - low) + 0.5);
        }
        seen += here;
    }
    return UINT64_MAX;
}

static bool stats_ends_with(const char *name, const char *suffix)
{
    const size_t length = strlen(name), end = strlen(suffix);
    return length > end && !strcmp(name + length - end, suffix);
}

/* Prints a figure unless it is 0. Figures whose names end with "_bytes" are sizes, those with "_ns" times. */
static void stats_print_line(lochi_text *out, const char *name, const char *line, uint64_t value)
{
    if (!value) return;
    if (stats_ends_with(name, "_bytes"))
        lochi_text_write(out, "%s: %s\n", line, LOCHI_SIZE(value));
    else if (stats_ends_with(name, "_ns"))
        lochi_text_write(out, "%s: %s\n", line, LOCHI_TIME(value));
    else
        lochi_text_write(out, "%s: %" PRIu64 "\n", line, value);
}

static void stats_print_lines(const loch_stats *stats, lochi_text *out)
{
#define STATS_LINE(name, sum, line) stats_print_line(out, #name, line, stats->name);
    LOCH_STATS_LIST(STATS_LINE)
#undef STATS_LINE
    lochi_text_write(out, "fragmentation: %.3f\n", loch_stats_fragmentation(stats));
}

static void stats_print_json(const loch_stats *stats, lochi_text *out)
{
    lochi_text_write(out, "{");
#define STATS_MEMBER(name, sum, line) lochi_text_write(out, "\"%s\": %" PRIu64 ", ", #name, stats->name);
    LOCH_STATS_LIST(STATS_MEMBER)
#undef STATS_MEMBER
    lochi_text_write(out, "\"fragmentation\": %.6f}", loch_stats_fragmentation(stats));
}

loch_status loch_stats_print(const loch_stats *stats, loch_format format, char *text, size_t bytes, size_t *length)
{
    LOCH_TRY_RETURN(lochi_printing_begin(stats, text, bytes, length));
    LOCH_TRY_RETURN(lochi_format_check(format));
    lochi_text out = lochi_text_begin(text, bytes);
    if (format == LOCH_FORMAT_JSON)
        stats_print_json(stats, &out);
    else
        stats_print_lines(stats, &out);
    return lochi_printing_end(&out, length);
}
