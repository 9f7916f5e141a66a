/* SPDX-License-Identifier: MIT */
#include "print.h"
#include "kit/fail.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

loch_status lochi_insight_text_begin(const void *object, loch_format format, char *text, size_t bytes, size_t *length,
                                     insight_text *out)
{
    if (length) *length = 0;
    if (bytes && text) *text = 0;
    if (!object || (bytes && !text)) return LOCH_FAIL(INVALID, "printing needs a recording, and a place for the text");
    if (format != LOCH_FORMAT_TEXT && format != LOCH_FORMAT_JSON)
        return LOCH_FAIL(INVALID, "format %d of figures is not known", (int)format);
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

/* Returns the length of the UTF-8 sequence at `text`; 0 if there is none. */
static size_t text_sequence(const unsigned char *text)
{
    const size_t length = *text < 0x80   ? 1
                          : *text < 0xc2 ? 0
                          : *text < 0xe0 ? 2
                          : *text < 0xf0 ? 3
                          : *text < 0xf5 ? 4
                                         : 0;
    for (size_t i = 1; i < length; i++)
        if ((text[i] & 0xc0) != 0x80) return 0;
    if ((*text == 0xe0 && text[1] < 0xa0) || (*text == 0xed && text[1] > 0x9f) || (*text == 0xf0 && text[1] < 0x90) ||
        (*text == 0xf4 && text[1] > 0x8f))
        return 0;
    return length;
}

/* Tells whether a character is a control character: of ASCII, or U+0080 to U+009F, of which U+009B begins a terminal's
 * commands too. `length` is that of its UTF-8 sequence. */
static bool text_is_control(const unsigned char *text, size_t length)
{
    return *text < ' ' || *text == 127 || (length == 2 && *text == 0xc2 && text[1] < 0xa0);
}

void lochi_insight_text_add_name(insight_text *out, const char *name)
{
    for (const unsigned char *at = (const unsigned char *)name; *at;) {
        const size_t length = text_sequence(at);
        if (text_is_control(at, length))
            lochi_insight_text_add(out, "\\x%02x", length == 2 ? at[1] : *at);
        else if (!length)
            lochi_insight_text_add(out, "?");
        else
            lochi_insight_text_add(out, "%.*s", (int)length, (const char *)at);
        at += length ? length : 1;
    }
}

void lochi_insight_text_add_quoted(insight_text *out, const char *text)
{
    lochi_insight_text_add(out, "\"");
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        const size_t length = text_sequence(at);
        if (*at == '"' || *at == '\\')
            lochi_insight_text_add(out, "\\%c", *at);
        else if (text_is_control(at, length))
            lochi_insight_text_add(out, "\\u%04x", length == 2 ? at[1] : *at);
        else if (!length)
            lochi_insight_text_add(out, "\xef\xbf\xbd");
        else
            lochi_insight_text_add(out, "%.*s", (int)length, (const char *)at);
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
