/* SPDX-License-Identifier: MIT */
/* Writes parts of the lines of a printed timeline. Nothing here depends on the locale. */
#include "engine/timeline/line.h"
#include "kit/utf8.h"
#include <stdint.h>
#include <string.h>

#define LINE_INDENT_MOST 24 /* columns; deeper spans are not indented further */

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

static size_t line_indent(unsigned depth)
{
    return depth < LINE_INDENT_MOST / 2 ? (size_t)depth * 2 : LINE_INDENT_MOST;
}

/* Returns the bytes of one character of a name, or 0 if it cannot be shown. Each character is counted as one column. */
static size_t line_character(const char *at)
{
    return lochi_utf8_control(at) ? 0 : lochi_utf8_length(at, SIZE_MAX);
}

/* Returns the distance in bytes to the next character. A character that cannot be shown has one byte, except control
 * characters of two bytes. */
static size_t line_skip(const char *at)
{
    const size_t length = lochi_utf8_length(at, SIZE_MAX);
    return length ? length : 1;
}

static size_t line_columns(const char *name)
{
    size_t columns = 0;
    for (const char *at = name; *at; at += line_skip(at))
        columns++;
    return columns;
}

size_t lochi_timeline_name_columns(const char *name, unsigned depth)
{
    return line_indent(depth) + line_columns(name);
}

void lochi_timeline_put_name(lochi_text *out, const char *name, unsigned depth, size_t columns)
{
    const size_t indent = line_indent(depth) < columns ? line_indent(depth) : columns;
    size_t left = columns - indent;
    lochi_timeline_fill(out, ' ', indent);
    const bool is_cut = line_columns(name) > left;
    const size_t dots = !is_cut ? 0 : left < 3 ? left : 3;
    left -= dots;
    for (const char *at = name; *at && left; at += line_skip(at), left--) {
        const size_t length = line_character(at);
        lochi_timeline_put(out, length ? at : "?", length ? length : 1);
    }
    lochi_timeline_put(out, "...", dots);
    lochi_timeline_fill(out, ' ', left);
}

void lochi_timeline_put_time(lochi_text *out, uint64_t ns)
{
    lochi_text_write(out, ns < 1000000000 ? "%13s" : "%12s ", LOCHI_TIME(ns)); /* units begin in one column */
}

void lochi_timeline_put_fixed(lochi_text *out, double number)
{
    if (!(number > -1e15 && number < 1e15)) { /* NaN, infinity, or too large to be a measured value */
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
