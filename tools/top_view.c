/* SPDX-License-Identifier: MIT */
/* Draws the figures of a process as lines of text. */
#include "top_view.h"
#include "tool.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define VIEW_LINE 2048
#define VIEW_CALLS 8
#define VIEW_BAR 16

typedef struct view {
    FILE *out;
    const top_style *style;
    const top_figures *now, *before;
    int rows; /* written so far */
} view;

/* --- lines --- */

static const char *view_colour(const view *v, const char *colour)
{
    return v->style->has_colours ? colour : "";
}

#define VIEW_BOLD(v) view_colour(v, "\033[1m")
#define VIEW_DIM(v) view_colour(v, "\033[2m")
#define VIEW_PLAIN(v) view_colour(v, "\033[0m")

/* Returns the length of the character or the escape sequence at `at`, and the columns that it takes. */
static size_t view_step(const char *at, int *columns)
{
    size_t length = 1;
    *columns = 1;
    if (*at == '\033') {
        *columns = 0;
        while (at[length] && at[length - 1] != 'm')
            length++;
        return length;
    }
    while (((unsigned char)at[length] & 0xC0) == 0x80)
        length++;
    return length;
}

/* Writes a line, cut to the width of the terminal. Lines below the last row are left out. */
static LOCH_PRINTF(2, 3) void view_line(view *v, const char *format, ...)
{
    char text[VIEW_LINE];
    va_list arguments;
    if (v->style->rows && v->rows >= v->style->rows) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (v->rows++ && v->style->is_live) fputs("\r\n", v->out);
    size_t at = 0, end = 0;
    for (int left = v->style->columns, columns; text[at]; at += 0) {
        at += view_step(text + at, &columns);
        if (columns > left) break;
        left -= columns;
        end = at;
    }
    while (end && text[end - 1] == ' ')
        end--;
    fwrite(text, 1, end, v->out);
    fputs(VIEW_PLAIN(v), v->out);
    fputs(v->style->is_live ? "\033[K" : "\n", v->out);
}

/* --- pieces --- */

/* Writes a bar of VIEW_BAR columns: what is in use, what is held besides, and what is left of the whole. */
static const char *view_bar(const view *v, uint64_t used, uint64_t held, uint64_t whole, char text[96])
{
    const double scale = whole ? VIEW_BAR / (double)whole : 0;
    int filled = (int)((double)used * scale + 0.5), kept = (int)((double)held * scale + 0.5);
    kept = kept < VIEW_BAR ? kept : VIEW_BAR;
    filled = filled < kept ? filled : kept;
    const char *colour = filled * 10 > VIEW_BAR * 9 ? "\033[31m" : filled * 10 > VIEW_BAR * 7 ? "\033[33m" : "\033[32m";
    snprintf(text, 96, "%s%.*s%s%.*s%.*s", view_colour(v, colour), filled, "################", VIEW_PLAIN(v),
             kept - filled, "----------------", VIEW_BAR - kept, "................");
    return text;
}

static const char *view_rate(bool has_rate, double rate, char text[32])
{
    if (!has_rate)
        snprintf(text, 32, "-");
    else if (rate >= 1e6)
        snprintf(text, 32, "%.1fM", rate / 1e6);
    else if (rate >= 1e4)
        snprintf(text, 32, "%.1fk", rate / 1e3);
    else
        snprintf(text, 32, "%.0f", rate);
    return text;
}

/* Returns the change of a figure in a second; 0 if it fell, because statistics were reset. */
static double view_per_second(const view *v, uint64_t now, uint64_t before)
{
    if (!v->before || v->now->time_ns <= v->before->time_ns || now < before) return 0;
    return (double)(now - before) * 1e9 / (double)(v->now->time_ns - v->before->time_ns);
}

static const top_allocator *view_earlier(const view *v, uint64_t number)
{
    static const top_allocator none;
    for (size_t i = 0; v->before && i < v->before->allocators_count; i++)
        if (v->before->allocators[i].number == number) return &v->before->allocators[i];
    return &none;
}

static double view_alloc_rate(const view *v, const top_allocator *a)
{
    return view_per_second(v, a->allocs, view_earlier(v, a->number)->allocs);
}

/* --- sums --- */

/* Adds up the allocators that take memory from a device themselves. */
static top_allocator view_sum(const top_figures *figures)
{
    top_allocator sum = {0};
    for (size_t i = 0; i < figures->allocators_count; i++) {
        const top_allocator *a = &figures->allocators[i];
        if (a->is_wrapper) continue;
        sum.requested += a->requested;
        sum.reserved += a->is_range ? 0 : a->reserved;
        sum.asleep += a->asleep;
        sum.blocks += a->blocks;
        sum.allocs += a->allocs;
        sum.frees += a->frees;
        sum.failures += a->failures;
    }
    return sum;
}

static uint64_t view_count_calls(const top_figures *figures)
{
    uint64_t count = 0;
    for (size_t i = 0; figures && i < figures->calls_count; i++)
        count += figures->calls[i].count;
    return count;
}

void top_history_add(top_history *history, const top_figures *now)
{
    if (history->count == TOP_HISTORY) {
        memmove(history->used, history->used + 1, (TOP_HISTORY - 1) * sizeof *history->used);
        history->count--;
    }
    history->used[history->count++] = view_sum(now).requested;
}

/* --- parts of the picture --- */

static void view_head(view *v, const top_history *history)
{
    char allocs[32], frees[32], calls[32], spark[TOP_HISTORY * 3 + 1];
    static const char *const eighths[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"}, *const plain[] = {
                                                                                            " ", "_", ".", ":", "-",
                                                                                            "=", "+", "*", "#"};
    const top_allocator sum = view_sum(v->now), before = v->before ? view_sum(v->before) : (top_allocator){0};
    const bool has_rate = v->before != NULL;
    view_line(v, "%sloch top%s  process %llu  %s%s", VIEW_BOLD(v), VIEW_PLAIN(v), (unsigned long long)v->now->pid,
              v->now->program, v->style->is_paused ? "  (paused)" : "");
    view_line(v, "in use %s of %s reserved, %llu blocks, %llu failures", LOCHI_SIZE_ROUND(sum.requested, 2),
              LOCHI_SIZE_ROUND(sum.reserved, 2), (unsigned long long)sum.blocks, (unsigned long long)sum.failures);
    view_line(v, "%s allocations/s, %s frees/s, %s driver calls/s",
              view_rate(has_rate, view_per_second(v, sum.allocs, before.allocs), allocs),
              view_rate(has_rate, view_per_second(v, sum.frees, before.frees), frees),
              view_rate(has_rate, view_per_second(v, view_count_calls(v->now), view_count_calls(v->before)), calls));
    uint64_t most = 1;
    const size_t room = v->style->columns > 30 ? (size_t)v->style->columns - 24 : 8;
    const size_t shown = history->count < room ? history->count : room, first = history->count - shown;
    for (size_t i = first; i < history->count; i++)
        most = history->used[i] > most ? history->used[i] : most;
    size_t length = 0;
    for (size_t i = first; i < history->count; i++) {
        const size_t step = history->used[i] ? 1 + (size_t)((double)history->used[i] / (double)most * 7 + 0.5) : 0;
        length +=
            (size_t)snprintf(spark + length, sizeof spark - length, "%s", (v->style->is_utf8 ? eighths : plain)[step]);
    }
    spark[length] = '\0';
    if (v->style->is_live)
        view_line(v, "%s%s%s  peak %s", view_colour(v, "\033[36m"), spark, VIEW_PLAIN(v), LOCHI_SIZE_ROUND(most, 2));
    for (size_t i = 0; i < v->now->devices_count; i++) {
        const top_device *d = &v->now->devices[i];
        char bar[96];
        if (!d->total) continue;
        view_line(v, "%-24.40s %s %s of %s", d->name,
                  view_bar(v, d->total - d->free, d->total - d->free, d->total, bar),
                  LOCHI_SIZE_ROUND(d->total - d->free, 2), LOCHI_SIZE_ROUND(d->total, 2));
    }
}

static const view *view_sorted; /* for the functions of qsort */

static int view_by(uint64_t a, uint64_t b)
{
    return a < b ? 1 : a > b ? -1 : 0;
}

static int view_compare_allocators(const void *left, const void *right)
{
    const top_allocator *a = left, *b = right;
    int order = 0;
    switch (view_sorted->style->order) {
    case TOP_BY_RESERVED: order = view_by(a->reserved, b->reserved); break;
    case TOP_BY_RATE:
        order = view_by((uint64_t)view_alloc_rate(view_sorted, a), (uint64_t)view_alloc_rate(view_sorted, b));
        break;
    case TOP_BY_NAME: order = strcmp(a->name, b->name); break;
    default: order = view_by(a->requested, b->requested);
    }
    return order ? order : -view_by(a->number, b->number);
}

static int view_compare_tags(const void *left, const void *right)
{
    const top_tag *a = left, *b = right;
    const int order =
        view_sorted->style->order == TOP_BY_NAME ? strcmp(a->name, b->name) : view_by(a->requested, b->requested);
    return order ? order : -view_by(a->tag, b->tag);
}

static int view_compare_calls(const void *left, const void *right)
{
    const top_call *a = left, *b = right;
    return view_by(a->count, b->count);
}

static void view_allocators(view *v)
{
    view_line(v, " ");
    view_line(v, "%s%-20s %-10s %11s %11s %11s  %-16s %5s %8s %8s %8s%s", VIEW_BOLD(v), "ALLOCATOR", "KIND", "IN USE",
              "RESERVED", "LIMIT", "USED-HELD.LIMIT", "FRAG", "ALLOC/S", "FREE/S", "BLOCKS", VIEW_PLAIN(v));
    for (size_t i = 0; i < v->now->allocators_count; i++) {
        const top_allocator *a = &v->now->allocators[i], *before = view_earlier(v, a->number);
        char bar[96], allocs[32], frees[32], fragmentation[16] = "-"; /* of a pool without blocks */
        const bool has_rate = before->number != 0;
        if (a->blocks) snprintf(fragmentation, sizeof fragmentation, "%.0f%%", a->fragmentation * 100);
        view_line(v, "%-20.20s %-10.10s %11s %11s %11s  %s %5s %8s %8s %8llu%s", a->name, a->kind,
                  LOCHI_SIZE_ROUND(a->requested, 2), LOCHI_SIZE_ROUND(a->reserved, 2),
                  a->limit ? LOCHI_SIZE_ROUND(a->limit, 2) : "-",
                  view_bar(v, a->requested, a->reserved, a->limit ? a->limit : a->reserved, bar), fragmentation,
                  view_rate(has_rate, view_alloc_rate(v, a), allocs),
                  view_rate(has_rate, view_per_second(v, a->frees, before->frees), frees),
                  (unsigned long long)a->blocks, a->asleep ? "  asleep" : "");
    }
}

static void view_tags(view *v)
{
    bool has_tags = false;
    for (size_t i = 0; i < v->now->tags_count; i++) {
        const top_tag *t = &v->now->tags[i];
        char rate[32];
        uint64_t before = 0;
        for (size_t k = 0; v->before && k < v->before->tags_count; k++)
            if (v->before->tags[k].tag == t->tag) before = v->before->tags[k].allocs;
        if (!t->allocs && !t->blocks) continue;
        if (!has_tags) {
            view_line(v, " ");
            view_line(v, "%s%-31s %11s %11s %8s%s", VIEW_BOLD(v), "TAG", "IN USE", "BLOCKS", "ALLOC/S", VIEW_PLAIN(v));
        }
        has_tags = true;
        view_line(v, "%-31.31s %11s %11llu %8s", t->name, LOCHI_SIZE_ROUND(t->requested, 2),
                  (unsigned long long)t->blocks,
                  view_rate(v->before != NULL, view_per_second(v, t->allocs, before), rate));
    }
}

static void view_calls(view *v)
{
    for (size_t i = 0; i < v->now->calls_count && i < VIEW_CALLS; i++) {
        const top_call *c = &v->now->calls[i];
        char rate[32];
        uint64_t before = 0;
        for (size_t k = 0; v->before && k < v->before->calls_count; k++)
            if (v->before->calls[k].device == c->device && !strcmp(v->before->calls[k].name, c->name))
                before = v->before->calls[k].count;
        if (!i) {
            view_line(v, " ");
            view_line(v, "%s%-18s %-12s %11s %11s%s", VIEW_BOLD(v), "DRIVER CALL", "DEVICE", "CALLS", "CALLS/S",
                      VIEW_PLAIN(v));
        }
        view_line(v, "%-18.18s %-12.12s %11llu %11s", c->name,
                  c->device < v->now->devices_count ? v->now->devices[c->device].name : "",
                  (unsigned long long)c->count,
                  view_rate(v->before != NULL, view_per_second(v, c->count, before), rate));
    }
}

void top_draw(FILE *out, const top_style *style, const top_figures *now, const top_figures *before,
              const top_history *history)
{
    static const char *const orders[] = {"memory in use", "memory reserved", "allocations", "name"};
    view v = {.out = out, .style = style, .now = now, .before = before};
    top_style fitting = *style;
    if (style->is_live && style->rows > 1) fitting.rows--; /* the last row is for the keys */
    v.style = &fitting;
    view_sorted = &v;
    if (now->allocators_count)
        qsort(now->allocators, now->allocators_count, sizeof *now->allocators, view_compare_allocators);
    if (now->tags_count) qsort(now->tags, now->tags_count, sizeof *now->tags, view_compare_tags);
    if (now->calls_count) qsort(now->calls, now->calls_count, sizeof *now->calls, view_compare_calls);
    view_head(&v, history);
    view_allocators(&v);
    view_tags(&v);
    view_calls(&v);
    v.style = style;
    if (style->is_live)
        view_line(&v, "%sq quit  space pause  s order: %s%s", VIEW_DIM(&v), orders[style->order], VIEW_PLAIN(&v));
}
