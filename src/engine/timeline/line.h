/* SPDX-License-Identifier: MIT */
/* Writes parts of the lines of a printed timeline (line.c). */
#ifndef LOCHI_TIMELINE_LINE_H
#define LOCHI_TIMELINE_LINE_H

#include "kit/text.h"
#include "engine/timeline/state.h"

/* Put bytes, or one character several times. */
void lochi_timeline_put(lochi_text *out, const char *bytes, size_t count);
void lochi_timeline_fill(lochi_text *out, char with, size_t count);

/* Puts a name for people, indented by its depth, in exactly `columns`. Shows control characters and bytes that are not
 * UTF-8 as '?', and cuts long names. */
void lochi_timeline_put_name(lochi_text *out, const char *name, unsigned depth, size_t columns);

/* Returns the columns that lochi_timeline_put_name needs to show a whole name. */
size_t lochi_timeline_name_columns(const char *name, unsigned depth);

/* Puts a time in at least 13 columns. */
void lochi_timeline_put_time(lochi_text *out, uint64_t ns);

/* Puts a number with two digits after the decimal point. */
void lochi_timeline_put_fixed(lochi_text *out, double number);

/* Puts a line with the number of lost spans, if there are any. */
void lochi_timeline_put_lost(loch_timeline *timeline, lochi_text *out);

#endif
