/* SPDX-License-Identifier: MIT */
/* Printing a timeline: the public call. */
#include "kit/printing.h"
#include "engine/timeline/bars.h"
#include "engine/timeline/trace.h"
#include "engine/timeline/tree.h"
#include "engine/timeline/walk.h"

loch_status loch_timeline_print(loch_timeline *timeline, loch_timeline_format format, size_t width, char *text,
                                size_t bytes, size_t *length)
{
    LOCH_TRY_RETURN(lochi_printing_begin(timeline, text, bytes, length));
    if ((unsigned)format > LOCH_TIMELINE_TRACE)
        return LOCH_FAIL(INVALID, "%d is not a loch_timeline_format value", (int)format);
    lochi_text out = lochi_text_begin(text, bytes);
    lochi_timeline_enter(timeline);
    switch (format) {
    case LOCH_TIMELINE_TREE: lochi_timeline_print_tree(timeline, &out); break;
    case LOCH_TIMELINE_BARS: lochi_timeline_print_bars(timeline, width, &out); break;
    case LOCH_TIMELINE_TRACE: lochi_timeline_print_trace(timeline, &out); break;
    }
    lochi_timeline_leave(timeline);
    return lochi_printing_end(&out, length);
}
