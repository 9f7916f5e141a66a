/* SPDX-License-Identifier: MIT */
/* A timeline as bars (bars.c). */
#ifndef LOCHI_TIMELINE_BARS_H
#define LOCHI_TIMELINE_BARS_H

#include "kit/text.h"
#include "engine/timeline/state.h"

/* Prints a timeline as bars in `width` columns; 0: the default. Call it inside a walk. */
void lochi_timeline_print_bars(loch_timeline *timeline, size_t width, lochi_text *out);

#endif
