/* SPDX-License-Identifier: MIT */
/* The parts of copies and fills with devices: rows in few driver calls (transfer_rows.c), and the way through the host
 * (transfer_stage.c). What a way costs is estimated before one is taken. */
#ifndef LOCHI_TRANSFER_H
#define LOCHI_TRANSFER_H

#include "device/device.h"
#include "tensor/strided.h"

/* --- rows --- */

/* How elements of one size are copied by loch_copy_pitched: up to two axes in one call, and a call for each place in the
 * others. */
typedef struct lochi_rows_plan {
    size_t row_bytes;
    size_t axes;                   /* outside of the rows */
    size_t rows_axis, planes_axis; /* in one call; `axes` for none */
    size_t calls, rows;            /* in all */
    uint64_t ns;                   /* about as long as it takes; UINT64_MAX when there are too many calls */
} lochi_rows_plan;

/* Which way the bytes go: inside of devices, or between one and host memory that is page-locked or not. */
typedef enum lochi_rows_way { LOCHI_ROWS_INSIDE, LOCHI_ROWS_PINNED, LOCHI_ROWS_PAGEABLE } lochi_rows_way;

/* The plan with the fewest calls. */
lochi_rows_plan lochi_rows_plan_make(const lochi_strided *strided, lochi_rows_way way);

/* Queues it. `to` and `from` are the addresses of the elements with all indices 0. */
loch_status lochi_rows_plan_run(const lochi_rows_plan *plan, const lochi_strided *strided,
                                const loch_copy_options *options, char *to, const char *from);

/* --- through the host --- */

/* A copy between two tensors, or two other things with layouts. */
typedef struct lochi_transfer {
    loch_device *to_device, *from_device; /* NULL: the host reads and writes that side */
    char *to;                             /* of the elements with all indices 0 */
    const char *from;
    lochi_strided strided;
    const lochi_converter *converter; /* NULL: the types are the same */
    loch_stream *stream;              /* the caller's; NULL: none */
} lochi_transfer;

/* About as long as the way through the host takes. */
uint64_t lochi_stage_estimate(const lochi_transfer *transfer);

/* Copies piece by piece through pinned memory, and waits for the end. The caller has waited for what comes before. */
loch_status lochi_stage_run(const lochi_transfer *transfer);

/* About as long as one call takes that copies `bytes` between host and device. */
uint64_t lochi_bus_ns(size_t bytes);

#endif
