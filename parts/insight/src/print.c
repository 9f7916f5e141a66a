/* SPDX-License-Identifier: MIT */
#include "print.h"
#include "escape.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

loch_status lochi_insight_text_begin(const void *object, loch_format format, char *text, size_t bytes, size_t *length,
                                     insight_text *out)
{
    if (length) *length = 0;
    if (bytes && text) *text = 0;
    if (!object || (bytes && !text))
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "printing needs a recording, and a place for the text");
    if (format != LOCH_FORMAT_TEXT && format != LOCH_FORMAT_JSON)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "format %d of figures is not known", (int)format);
    *out = (insight_text){text, bytes, 0};
    return LOCH_OK;
}

loch_status lochi_insight_text_end(const insight_text *out, size_t *length)
{
    if (length) *length = out->length;
    return LOCH_OK;
}

void lochi_insight_text_add(insight_text *out, const char *format, ...)
{
    va_list arguments;
    const bool has_room = out->length < out->bytes;
    va_start(arguments, format);
    const int length = vsnprintf(has_room ? out->text + out->length : NULL, has_room ? out->bytes - out->length : 0,
                                 format, arguments);
    va_end(arguments);
    if (length > 0) out->length += (size_t)length;
}

void lochi_insight_text_add_name(insight_text *out, const char *name)
{
    for (const char *at = name; *at;) {
        const size_t length = lochi_insight_utf8_length(at, SIZE_MAX);
        if (lochi_insight_control_length(at))
            lochi_insight_text_add(out, "\\x%02x", (unsigned char)at[length - 1]);
        else if (!length)
            lochi_insight_text_add(out, "?");
        else
            lochi_insight_text_add(out, "%.*s", (int)length, at);
        at += length ? length : 1;
    }
}

void lochi_insight_text_add_quoted(insight_text *out, const char *text)
{
    lochi_insight_text_add(out, "\"");
    for (const char *at = text; *at;) {
        const size_t length = lochi_insight_utf8_length(at, SIZE_MAX);
        if (*at == '"' || *at == '\\')
            lochi_insight_text_add(out, "\\%c", *at);
        else if (lochi_insight_control_length(at))
            lochi_insight_text_add(out, "\\u%04x", (unsigned char)at[length - 1]);
        else if (!length)
            lochi_insight_text_add(out, "\xef\xbf\xbd");
        else
            lochi_insight_text_add(out, "%.*s", (int)length, at);
        at += length ? length : 1;
    }
    lochi_insight_text_add(out, "\"");
}

/* --- figures --- */

const char *lochi_insight_figure_bytes(uint64_t bytes, char text[INSIGHT_FIGURE_MAX])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double value = (double)bytes;
    size_t unit = 0;
    while (value >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        value /= 1024;
        unit++;
    }
    snprintf(text, INSIGHT_FIGURE_MAX, unit ? "%.2f %s" : "%.0f %s", value, units[unit]);
    return text;
}

const char *lochi_insight_figure_number(uint64_t number, char text[INSIGHT_FIGURE_MAX])
{
    char digits[INSIGHT_FIGURE_MAX];
    const size_t count = (size_t)snprintf(digits, sizeof digits, "%" PRIu64, number);
    size_t to = 0;
    for (size_t i = 0; i < count; i++) {
        if (i && (count - i) % 3 == 0) text[to++] = ',';
        text[to++] = digits[i];
    }
    text[to] = 0;
    return text;
}

const char *lochi_insight_figure_time(uint64_t ns, char text[INSIGHT_FIGURE_MAX])
{
    const double value = (double)ns;
    if (ns < 1000)
        snprintf(text, INSIGHT_FIGURE_MAX, "%" PRIu64 " ns", ns);
    else if (ns < 1000000)
        snprintf(text, INSIGHT_FIGURE_MAX, "%.1f us", value / 1e3);
    else if (ns < 1000000000)
        snprintf(text, INSIGHT_FIGURE_MAX, "%.1f ms", value / 1e6);
    else
        snprintf(text, INSIGHT_FIGURE_MAX, "%.3f s", value / 1e9);
    return text;
}

typedef const char *figure_format(uint64_t value, char text[INSIGHT_FIGURE_MAX]);

static const char *figure_step(figure_format *format, uint64_t before, uint64_t after, char text[INSIGHT_FIGURE_MAX])
{
    char figure[INSIGHT_FIGURE_MAX];
    if (before == after)
        snprintf(text, INSIGHT_FIGURE_MAX, "0");
    else
        snprintf(text, INSIGHT_FIGURE_MAX, "%c%.30s", after > before ? '+' : '-',
                 format(after > before ? after - before : before - after, figure));
    return text;
}

const char *lochi_insight_figure_bytes_step(uint64_t before, uint64_t after, char text[INSIGHT_FIGURE_MAX])
{
    return figure_step(lochi_insight_figure_bytes, before, after, text);
}

const char *lochi_insight_figure_number_step(uint64_t before, uint64_t after, char text[INSIGHT_FIGURE_MAX])
{
    return figure_step(lochi_insight_figure_number, before, after, text);
}

const char *lochi_insight_figure_time_step(uint64_t before, uint64_t after, char text[INSIGHT_FIGURE_MAX])
{
    return figure_step(lochi_insight_figure_time, before, after, text);
}
