/* SPDX-License-Identifier: MIT */
#include "print.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

loch_status lochi_insight_text_begin(const void *object, loch_format format, char *text, size_t bytes, size_t *length,
                                     lochi_text *out)
{
    LOCH_RETURN(lochi_printing_begin(object, text, bytes, length));
    if (format != LOCH_FORMAT_TEXT && format != LOCH_FORMAT_JSON)
        return LOCH_FAIL(INVALID, "format %d of figures is not known", (int)format);
    *out = lochi_text_begin(text, bytes);
    return LOCH_OK;
}

/* --- figures --- */

const char *lochi_insight_figure_bytes(uint64_t bytes, char text[INSIGHT_FIGURE_MAX])
{
    return strcpy(text, LOCHI_SIZE_ROUND(bytes, 2));
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
