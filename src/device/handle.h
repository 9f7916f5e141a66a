/* SPDX-License-Identifier: MIT */
/* The struct of handles. */
#ifndef LOCHI_HANDLE_H
#define LOCHI_HANDLE_H

#include "device/state.h"

struct loch_handle {
    loch_device *device;
    loch_driver_handle native;
    size_t bytes;
    uint32_t share;           /* set of loch_share given at creation */
    atomic_size_t references; /* one for the owner and one for each mapping */
    size_t mappings;          /* under the lock of the table of ranges */
};

/* Releases one reference. The last release frees the object. The driver counts the memory itself. */
void lochi_handle_release(loch_handle *handle);

#endif
