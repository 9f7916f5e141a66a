/* SPDX-License-Identifier: MIT */
/* Prints a timeline as bars: one line for each span. */
#include "engine/timeline/bars.h"
#include "engine/timeline/line.h"
#include "engine/timeline/walk.h"

#define BARS_WIDTH 100
#define BARS_WIDTH_MOST 10000
#define BARS_NAME 40 /* columns for the names beside the bars */

typedef struct bars_axis {
    uint64_t first_ns, last_ns;
    size_t name_columns;
} bars_axis;

static bars_axis bars_measure(loch_timeline *timeline)
{
    bars_axis axis = {.first_ns = UINT64_MAX};
    timeline_cursor cursor = lochi_timeline_cursor(timeline);
    for (timeline_view view; lochi_timeline_next(&cursor, &view);) {
        const uint64_t end_ns = view.begin_ns + view.length_ns;
        const size_t columns = lochi_timeline_name_columns(view.record.name, view.record.depth);
        if (view.begin_ns < axis.first_ns) axis.first_ns = view.begin_ns;
        if (end_ns > axis.last_ns) axis.last_ns = end_ns;
        if (columns > axis.name_columns) axis.name_columns = columns;
    }
    if (axis.name_columns > BARS_NAME) axis.name_columns = BARS_NAME;
    return axis;
}

/* Returns the column of a time, clamped to 0 to `width`. */
static size_t bars_column(const bars_axis *axis, uint64_t ns, size_t width)
{
    if (ns <= axis->first_ns || axis->last_ns <= axis->first_ns) return 0;
    if (ns >= axis->last_ns) return width;
    const double share = (double)(ns - axis->first_ns) / (double)(axis->last_ns - axis->first_ns);
    const size_t column = (size_t)(share * (double)width);
    return column < width ? column : width;
}

static void bars_line(const bars_axis *axis, const timeline_view *view, size_t width, lochi_text *out)
{
    size_t begin = bars_column(axis, view->begin_ns, width);
    size_t end = bars_column(axis, view->begin_ns + view->length_ns, width);
    if (begin == width) begin--; /* each bar has at least one column */
    if (end <= begin) end = begin + 1;
    lochi_timeline_put_name(out, view->record.name, view->record.depth, axis->name_columns);
    lochi_text_write(out, " ");
    lochi_timeline_put_time(out, view->length_ns);
    lochi_text_write(out, " |");
    lochi_timeline_fill(out, ' ', begin);
    lochi_timeline_fill(out, view->has_device ? '=' : '#', end - begin);
    lochi_timeline_fill(out, ' ', width - end);
    lochi_text_write(out, "|%s\n", view->is_open ? " open" : "");
}

void lochi_timeline_print_bars(loch_timeline *timeline, size_t width, lochi_text *out)
{
    if (!width) width = BARS_WIDTH;
    if (width > BARS_WIDTH_MOST) width = BARS_WIDTH_MOST;
    const bars_axis axis = bars_measure(timeline);
    timeline_cursor cursor = lochi_timeline_cursor(timeline);
    bool is_first = true;
    unsigned thread = 0;
    for (timeline_view view; lochi_timeline_next(&cursor, &view);) {
        if (is_first || view.record.thread != thread) lochi_text_write(out, "thread %u\n", view.record.thread);
        is_first = false;
        thread = view.record.thread;
        bars_line(&axis, &view, width, out);
    }
    if (is_first) lochi_text_write(out, "no spans\n");
    lochi_timeline_put_lost(timeline, out);
}
