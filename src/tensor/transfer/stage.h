/* SPDX-License-Identifier: MIT */
/* Copies through the host. The cost is estimated before this method is chosen. */
#ifndef LOCHI_TRANSFER_STAGE_H
#define LOCHI_TRANSFER_STAGE_H

#include "device/device.h"
#include "tensor/transfer/strided.h"

/* A copy between two tensors, or other objects with layouts. */
typedef struct lochi_transfer {
    loch_device *to_device, *from_device; /* NULL: the host can access that side */
    char *to;                             /* addresses of the elements with all indices 0 */
    const char *from;
    lochi_strided strided;
    const lochi_converter *converter; /* NULL: the types are the same */
    loch_stream *stream;              /* the caller's; NULL: none */
} lochi_transfer;

/* Returns the estimated time of the copy through the host. */
uint64_t lochi_stage_estimate(const lochi_transfer *transfer);

/* Copies piece by piece through pinned memory, and waits for the end. The caller has waited for earlier work. */
loch_status lochi_stage_run(const lochi_transfer *transfer);

#endif
