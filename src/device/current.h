/* SPDX-License-Identifier: MIT */
/* Devices that are current in a thread: for work that the caller queues by the driver's own interface, such as plain
 * CUDA.
 *
 * A stay makes a device current in the calling thread until it ends; then what was current before is again. Stays may
 * end in any order. They are a list of their thread, the last one begun first: one that ends below another of its
 * driver hands what it has to put back to that one, and the device that is current stays so. */
#ifndef LOCHI_CURRENT_H
#define LOCHI_CURRENT_H

#include "device/state.h"

/* One stay. Lies where its owner likes, and does not move until it has ended. All zero: none. */
typedef struct lochi_stay {
    struct lochi_stay *below; /* of the same thread, begun before */
    loch_device *device;      /* borrowed until the end; NULL: none, or a driver that knows no current device */
    void *before;             /* the driver's: what was current */
} lochi_stay;

/* Makes a device current in the calling thread. A failure leaves what was current, and the stay all zero. Costs nothing but a
 * comparison on devices whose driver knows no current device, as the CPU. */
loch_status lochi_stay_begin(lochi_stay *stay, loch_device *device);

/* Ends a stay that the calling thread has begun; one that is all zero does nothing. Leaves the thread's error record:
 * what goes wrong is logged. */
void lochi_stay_end(lochi_stay *stay);

#endif
