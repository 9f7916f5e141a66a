/* SPDX-License-Identifier: MIT */
/* A timeline as a trace for Chrome and Perfetto (trace.c). */
#ifndef LOCHI_TIMELINE_TRACE_H
#define LOCHI_TIMELINE_TRACE_H

#include "kit/text.h"
#include "engine/timeline/state.h"

/* Prints a timeline as a trace. Call it inside a walk. */
void lochi_timeline_print_trace(loch_timeline *timeline, lochi_text *out);

#endif
