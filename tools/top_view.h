/* SPDX-License-Identifier: MIT */
/* The picture of `loch top`: lines of text of a given width, with colours or without. */
#ifndef LOCH_TOP_VIEW_H
#define LOCH_TOP_VIEW_H

#include "top_source.h"
#include <stdio.h>

#define TOP_HISTORY 512

typedef enum top_order { TOP_BY_USED, TOP_BY_RESERVED, TOP_BY_RATE, TOP_BY_NAME, TOP_ORDERS } top_order;

/* How figures are drawn. */
typedef struct top_style {
    int columns, rows; /* 0 rows: as many as there are */
    bool has_colours;
    bool is_utf8; /* the terminal shows blocks of eighths */
    bool is_live; /* keys work, lines end with an order to clear the rest */
    bool is_paused;
    top_order order;
    double interval; /* in seconds */
} top_style;

/* Memory in use over time, newest last. */
typedef struct top_history {
    uint64_t used[TOP_HISTORY];
    size_t count;
} top_history;

/* Adds the memory that is in use to the history. */
void top_history_add(top_history *history, const top_figures *now);

/* Writes the picture. `before` is an earlier moment for the rates; NULL for none. */
void top_draw(FILE *out, const top_style *style, const top_figures *now, const top_figures *before,
              const top_history *history);

#endif
