/* SPDX-License-Identifier: MIT */
/* Pieces of lines of a printed timeline (line.c). */
#ifndef LOCHI_TIMELINE_LINE_H
#define LOCHI_TIMELINE_LINE_H

#include "base/text.h"
#include "engine/timeline/state.h"

/* Put bytes, or one character many times. */
void lochi_timeline_put(lochi_text *out, const char *bytes, size_t count);
void lochi_timeline_fill(lochi_text *out, char with, size_t count);

/* Puts a name for people, indented for its depth, in exactly `columns`: control characters and what is not UTF-8 are
 * shown as '?', and what is too long is cut. */
void lochi_timeline_put_name(lochi_text *out, const char *name, unsigned depth, size_t columns);

/* Returns the columns that lochi_timeline_put_name needs for all of a name. */
size_t lochi_timeline_name_columns(const char *name, unsigned depth);

/* Puts a time in 13 columns, or more. */
void lochi_timeline_put_time(lochi_text *out, uint64_t ns);

/* Puts a number with two digits behind the point, whatever the locale. */
void lochi_timeline_put_fixed(lochi_text *out, double number);

/* Puts a line that says how many spans were lost, if any were. */
void lochi_timeline_put_lost(loch_timeline *timeline, lochi_text *out);

#endif
