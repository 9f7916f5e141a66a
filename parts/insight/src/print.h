/* SPDX-License-Identifier: MIT */
/* What printing needs beyond the kit: checked arguments, and figures. */
#ifndef LOCH_INSIGHT_PRINT_H
#define LOCH_INSIGHT_PRINT_H

#include "kit/printing.h"
#include <loch/insight.h>

#define INSIGHT_FIGURE_MAX 32 /* bytes of one formatted figure */

/* Checks the arguments of a function that prints, and sets `length` to 0. E_INVALID. */
loch_status lochi_insight_text_begin(const void *object, loch_format format, char *text, size_t bytes, size_t *length,
                                     lochi_text *out);

/* Format "3.36 GiB", "707,805", "12.5 ms". Return `text`. */
const char *lochi_insight_figure_bytes(uint64_t bytes, char text[INSIGHT_FIGURE_MAX]);
const char *lochi_insight_figure_number(uint64_t number, char text[INSIGHT_FIGURE_MAX]);
const char *lochi_insight_figure_time(uint64_t ns, char text[INSIGHT_FIGURE_MAX]);

/* Format a difference with its sign: "+266.00 MiB", "-1,024", "+3.100 ms"; "0" for none. Return `text`. */
const char *lochi_insight_figure_bytes_step(uint64_t before, uint64_t after, char text[INSIGHT_FIGURE_MAX]);
const char *lochi_insight_figure_number_step(uint64_t before, uint64_t after, char text[INSIGHT_FIGURE_MAX]);
const char *lochi_insight_figure_time_step(uint64_t before, uint64_t after, char text[INSIGHT_FIGURE_MAX]);

#endif
