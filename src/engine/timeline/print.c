/* SPDX-License-Identifier: MIT */
/* Printing a timeline: the call, pieces of lines, and bars. Nothing here depends on the locale. */
#include "base/printing.h"
#include "engine/timeline/inside.h"
#include <string.h>

#define PRINT_WIDTH 100
#define PRINT_WIDTH_MOST 10000
#define PRINT_INDENT_MOST 24 /* columns: deeper spans are not moved further */
#define PRINT_BARS_NAME 40   /* columns of names beside bars */

/* --- pieces of lines --- */

void lochi_timeline_put(lochi_text *out, const char *bytes, size_t count)
{
    if (out->length < out->bytes) {
        const size_t left = out->bytes - out->length - 1; /* one for the final zero */
        const size_t fits = count < left ? count : left;
        memcpy(out->text + out->length, bytes, fits);
        out->text[out->length + fits] = '\0';
    }
    out->length += count;
}

void lochi_timeline_fill(lochi_text *out, char with, size_t count)
{
    if (out->length < out->bytes) {
        const size_t left = out->bytes - out->length - 1;
        const size_t fits = count < left ? count : left;
        memset(out->text + out->length, with, fits);
        out->text[out->length + fits] = '\0';
    }
    out->length += count;
}

static size_t print_indent(unsigned depth)
{
    return depth < PRINT_INDENT_MOST / 2 ? (size_t)depth * 2 : PRINT_INDENT_MOST;
}

/* One character of a name: its bytes, or 0 when it cannot be shown. Each takes one column, or nearly so. */
static size_t print_character(const char *at)
{
    const size_t length = (size_t)lochi_text_utf8_length(at);
    const unsigned char lead = (unsigned char)*at;
    const bool is_control = lead < 0x20 || lead == 0x7f || (lead == 0xc2 && ((unsigned char)at[1] & 0xe0) == 0x80);
    return is_control ? 0 : length;
}

/* A character that cannot be shown is one byte, but for the controls of two. */
static size_t print_skip(const char *at)
{
    const size_t length = (size_t)lochi_text_utf8_length(at);
    return length ? length : 1;
}

static size_t print_columns(const char *name)
{
    size_t columns = 0;
    for (const char *at = name; *at; at += print_skip(at))
        columns++;
    return columns;
}

size_t lochi_timeline_name_columns(const char *name, unsigned depth)
{
    return print_indent(depth) + print_columns(name);
}

void lochi_timeline_put_name(lochi_text *out, const char *name, unsigned depth, size_t columns)
{
    const size_t indent = print_indent(depth) < columns ? print_indent(depth) : columns;
    size_t left = columns - indent;
    lochi_timeline_fill(out, ' ', indent);
    const bool is_cut = print_columns(name) > left;
    const size_t dots = !is_cut ? 0 : left < 3 ? left : 3;
    left -= dots;
    for (const char *at = name; *at && left; at += print_skip(at), left--) {
        const size_t length = print_character(at);
        lochi_timeline_put(out, length ? at : "?", length ? length : 1);
    }
    lochi_timeline_put(out, "...", dots);
    lochi_timeline_fill(out, ' ', left);
}

void lochi_timeline_put_time(lochi_text *out, uint64_t ns)
{
    static const struct {
        uint64_t one;
        const char *name;
    } units[] = {{1000000000, "s "}, {1000000, "ms"}, {1000, "us"}};
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        if (ns < units[i].one) continue;
        const uint64_t whole = ns / units[i].one, part = ns % units[i].one / (units[i].one / 1000);
        lochi_text_write(out, "%6llu.%03u %s", (unsigned long long)whole, (unsigned)part, units[i].name);
        return;
    }
    lochi_text_write(out, "%10llu ns", (unsigned long long)ns);
}

void lochi_timeline_put_fixed(lochi_text *out, double number)
{
    if (!(number > -1e15 && number < 1e15)) { /* nothing that anybody measures, and no number at all */
        lochi_text_write(out, "?");
        return;
    }
    const double size = number < 0 ? -number : number;
    const uint64_t hundredths = (uint64_t)(size * 100 + 0.5);
    lochi_text_write(out, "%s%llu.%02u", number < 0 && hundredths ? "-" : "", (unsigned long long)(hundredths / 100),
                     (unsigned)(hundredths % 100));
}

void lochi_timeline_put_lost(loch_timeline *timeline, lochi_text *out)
{
    uint64_t lost;
    loch_timeline_count(timeline, NULL, &lost);
    if (!lost) return;
    lochi_text_write(out, "%llu spans were lost: %zu are kept for each thread\n", (unsigned long long)lost,
                     timeline->capacity);
}

/* --- bars --- */

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
    if (axis.name_columns > PRINT_BARS_NAME) axis.name_columns = PRINT_BARS_NAME;
    return axis;
}

/* The column of a time, from 0 to `width`, whatever the time. */
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
    if (begin == width) begin--; /* each has a column at least */
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
    if (!width) width = PRINT_WIDTH;
    if (width > PRINT_WIDTH_MOST) width = PRINT_WIDTH_MOST;
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

/* --- the call --- */

loch_status loch_timeline_print(loch_timeline *timeline, loch_timeline_format format, size_t width, char *text,
                                size_t bytes, size_t *length)
{
    LOCH_TRY_RETURN(lochi_printing_begin(timeline, text, bytes, length));
    if ((unsigned)format > LOCH_TIMELINE_TRACE)
        return LOCH_FAIL(INVALID, "timeline format %d is not known", (int)format);
    lochi_text out = lochi_text_begin(text, bytes);
    lochi_timeline_enter(timeline);
    switch (format) {
    case LOCH_TIMELINE_TREE: lochi_timeline_print_tree(timeline, &out); break;
    case LOCH_TIMELINE_BARS: lochi_timeline_print_bars(timeline, width, &out); break;
    case LOCH_TIMELINE_TRACE: lochi_timeline_print_trace(timeline, &out); break;
    }
    lochi_timeline_leave(timeline);
    return lochi_printing_end(&out, length);
}
