/* SPDX-License-Identifier: MIT */
/* Draws a plan. Of very many buffers the largest ones are drawn, which are those that can be seen. */
#include "plan_picture.h"
#include "tool.h"
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PICTURE_WIDTH 1200.0
#define PICTURE_HEIGHT 640.0
#define PICTURE_LEFT 90.0
#define PICTURE_TOP 40.0
#define PICTURE_BOTTOM 40.0
#define PICTURE_BUFFERS_MAX 30000
#define PICTURE_TICKS 5

/* Colours that people with any colour vision can tell apart (Okabe and Ito). */
static const char *const picture_colours[] = {"#56b4e9", "#e69f00", "#009e73", "#f0e442",
                                              "#0072b2", "#d55e00", "#cc79a7"};

#define PICTURE_COLOURS (sizeof picture_colours / sizeof *picture_colours)

typedef struct picture {
    FILE *file;
    uint64_t first, last, top;
} picture;

typedef struct picture_key {
    double area;
    size_t buffer;
} picture_key;

static int picture_compare(const void *a, const void *b)
{
    const picture_key *x = a, *y = b;
    if (x->area != y->area) return x->area > y->area ? -1 : 1;
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

static double picture_x(const picture *p, uint64_t time)
{
    return PICTURE_LEFT + PICTURE_WIDTH * (double)(time - p->first) / (double)(p->last - p->first);
}

static double picture_y(const picture *p, uint64_t offset)
{
    return PICTURE_TOP + PICTURE_HEIGHT * (1 - (double)offset / (double)p->top);
}

static void picture_draw_box(const picture *p, uint64_t first, uint64_t last, uint64_t low, uint64_t high)
{
    if (first >= last || low >= high) return;
    const double x = picture_x(p, first), y = picture_y(p, high);
    fprintf(p->file, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>", x, y, picture_x(p, last) - x,
            picture_y(p, low) - y);
}

/* Writes a name with the characters that XML does not allow left out. */
static void picture_write_name(const picture *p, const char *name)
{
    for (; *name; name++)
        if ((unsigned char)*name >= 0x20 && (unsigned char)*name < 0x7f && !strchr("<>&\"'", *name))
            fputc(*name, p->file);
}

static void picture_draw_buffer(const picture *p, const loch_plan_problem *problem, size_t index, uint64_t offset)
{
    const loch_plan_buffer *buffer = &problem->buffers[index];
    fprintf(p->file, "<g fill=\"%s\"><title>",
            picture_colours[(buffer->bytes * UINT64_C(0x9e3779b97f4a7c15) >> 32) % PICTURE_COLOURS]);
    if (problem->names)
        picture_write_name(p, problem->names[index]);
    else
        fprintf(p->file, "%zu", index);
    fprintf(p->file, ": %s at %" PRIu64 ", time %" PRIu64 " to %" PRIu64 "</title>", LOCHI_SIZE_ROUND(buffer->bytes, 2),
            offset, buffer->first, buffer->last);
    uint64_t from = buffer->first;
    for (uint32_t i = 0; i < buffer->gaps_count; i++) {
        const loch_plan_gap *gap = &buffer->gaps[i];
        picture_draw_box(p, from, gap->first, offset, offset + buffer->bytes);
        picture_draw_box(p, gap->first, gap->last, offset + gap->window_begin, offset + gap->window_end);
        from = gap->last;
    }
    picture_draw_box(p, from, buffer->last, offset, offset + buffer->bytes);
    fputs("</g>\n", p->file);
}

static void picture_draw_axes(const picture *p, const loch_plan_info *info, uint64_t capacity)
{
    for (uint64_t i = 0; i <= PICTURE_TICKS; i++) {
        const uint64_t offset = p->top / PICTURE_TICKS * i, time = p->first + (p->last - p->first) / PICTURE_TICKS * i;
        fprintf(p->file, "<text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n", PICTURE_LEFT - 8,
                picture_y(p, offset) + 4, LOCHI_SIZE_ROUND(offset, 2));
        fprintf(p->file, "<text x=\"%.1f\" y=\"%.0f\" text-anchor=\"middle\">%" PRIu64 "</text>\n", picture_x(p, time),
                PICTURE_TOP + PICTURE_HEIGHT + 18, time);
    }
    fprintf(p->file, "<text x=\"%.0f\" y=\"22\" font-size=\"15\">%zu buffers, height %s, lower bound %s%s</text>\n",
            PICTURE_LEFT, info->count, LOCHI_SIZE_ROUND(info->height, 2), LOCHI_SIZE_ROUND(info->lower_bound, 2),
            info->is_best ? ", proven best" : "");
    if (capacity)
        fprintf(p->file, "<path d=\"M%.0f %.1fh%.0f\" stroke=\"#d00\" stroke-dasharray=\"6 4\"/>\n", PICTURE_LEFT,
                picture_y(p, capacity), PICTURE_WIDTH);
    fprintf(p->file, "<path d=\"M%.0f %.0fv%.0fh%.0f\" fill=\"none\" stroke=\"#444\"/>\n", PICTURE_LEFT, PICTURE_TOP,
            PICTURE_HEIGHT, PICTURE_WIDTH);
}

int plan_picture_save(const loch_plan_problem *problem, const loch_plan *plan, uint64_t capacity, const char *path)
{
    loch_plan_info info = {.size = sizeof info};
    const loch_status status = loch_plan_get_info(plan, &info);
    if (status != LOCH_OK) return tool_fail_status(status);
    picture_key *keys = calloc(problem->count + 1, sizeof *keys);
    if (!keys) return tool_fail("there is no memory to draw the plan");
    picture p = {
        .file = fopen(path, "we"), .first = UINT64_MAX, .top = capacity > info.height ? capacity : info.height};
    if (!p.file) {
        free(keys);
        return tool_fail("%s: %s", path, strerror(errno));
    }
    for (size_t i = 0; i < problem->count; i++) {
        const loch_plan_buffer *buffer = &problem->buffers[i];
        if (buffer->first < p.first) p.first = buffer->first;
        if (buffer->last > p.last) p.last = buffer->last;
        keys[i] = (picture_key){(double)buffer->bytes * (double)(buffer->last - buffer->first), i};
    }
    if (p.first >= p.last) p.first = 0, p.last = 1;
    if (!p.top) p.top = 1;
    qsort(keys, problem->count, sizeof *keys, picture_compare);
    fprintf(p.file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\" "
            "font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<g stroke=\"#333\" stroke-width=\".4\">\n",
            PICTURE_LEFT + PICTURE_WIDTH + 50, PICTURE_TOP + PICTURE_HEIGHT + PICTURE_BOTTOM);
    for (size_t i = 0; i < problem->count && i < PICTURE_BUFFERS_MAX; i++)
        picture_draw_buffer(&p, problem, keys[i].buffer, loch_plan_get_offsets(plan)[keys[i].buffer]);
    fputs("</g>\n", p.file);
    picture_draw_axes(&p, &info, capacity);
    fputs("</svg>\n", p.file);
    free(keys);
    const bool is_written = !ferror(p.file);
    return fclose(p.file) || !is_written ? tool_fail("%s could not be written", path) : TOOL_DONE;
}
