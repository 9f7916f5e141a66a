/* SPDX-License-Identifier: MIT */
/* Devices that are current in a thread, for work that the caller queues through the driver's own interface, such as
 * plain CUDA.
 *
 * A stay makes a device current in the calling thread until the stay ends; then the earlier device is current again.
 * Stays may end in any order. The stays of a thread are a list, newest first. A stay that ends below another stay of
 * its driver passes the context that it has to restore to that stay, and the current device does not change. */
#ifndef LOCHI_CURRENT_H
#define LOCHI_CURRENT_H

#include "base/shared.h"
#include "device/state.h"

/* One stay. The owner provides its memory, and it must not move until it has ended. All zero: not begun. */
typedef struct lochi_stay {
    struct lochi_stay *below; /* the stay of the same thread that was begun before */
    loch_device *device;      /* borrowed until the end; NULL if not begun, or if the driver has no current device */
    void *before;             /* the driver's record of what was current before */
} lochi_stay;

/* Makes a device current in the calling thread. A failure leaves the earlier device current, and the stay all zero.
 * Costs one comparison on devices whose driver has no current device, such as the CPU. */
LOCHI_SHARED loch_status lochi_stay_begin(lochi_stay *stay, loch_device *device);

/* Ends a stay that the calling thread has begun. A stay that is all zero does nothing. Keeps the thread's error
 * record; a failure is logged. */
LOCHI_SHARED void lochi_stay_end(lochi_stay *stay);

#endif
