/* SPDX-License-Identifier: MIT */
/* Copies rows in few driver calls, and estimates the cost. */
#ifndef LOCHI_TRANSFER_ROWS_H
#define LOCHI_TRANSFER_ROWS_H

#include "tensor/transfer/strided.h"
#include <loch/copy.h>

/* How elements of one size are copied by loch_copy_pitched: up to two axes in one call, and one call for each index of
 * the other axes. */
typedef struct lochi_rows_plan {
    size_t row_bytes;
    size_t axes;                   /* number of axes outside of the rows */
    size_t rows_axis, planes_axis; /* the axes in one call; `axes`: none */
    size_t calls, rows;            /* totals */
    uint64_t ns;                   /* estimated time; UINT64_MAX if there are too many calls */
} lochi_rows_plan;

/* The path of the bytes: inside of devices, or between a device and pinned or pageable host memory. */
typedef enum lochi_rows_way { LOCHI_ROWS_INSIDE, LOCHI_ROWS_PINNED, LOCHI_ROWS_PAGEABLE } lochi_rows_way;

/* Makes the plan with the fewest calls. */
lochi_rows_plan lochi_rows_plan_make(const lochi_strided *strided, lochi_rows_way way);

/* Queues the copies of a plan. `to` and `from` are the addresses of the elements with all indices 0. */
loch_status lochi_rows_plan_run(const lochi_rows_plan *plan, const lochi_strided *strided,
                                const loch_copy_options *options, char *to, const char *from);

/* Returns the estimated time of one call that copies `bytes` between host and device. */
uint64_t lochi_bus_ns(size_t bytes);

#endif
