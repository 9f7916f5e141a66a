/* SPDX-License-Identifier: MIT */
/* The inside of handles. */
#ifndef LOCHI_HANDLE_H
#define LOCHI_HANDLE_H

#include "device/state.h"

struct loch_handle {
    loch_device *device;
    loch_driver_handle native;
    size_t bytes;
    uint32_t share;           /* set of loch_share that it was created with */
    atomic_size_t references; /* the owner's and one for each mapping */
    size_t mappings;          /* under the lock of the table of ranges */
};

/* Gives one reference back; the last one frees the object. The memory itself is the driver's to count. */
void lochi_handle_release(loch_handle *handle);

#endif
