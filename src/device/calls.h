/* SPDX-License-Identifier: MIT */
/* Counting driver calls (calls.c). */
#ifndef LOCHI_CALLS_H
#define LOCHI_CALLS_H

#include "base/shared.h"
#include "kit/cancel.h"
#include "device/state.h"

/* The start of a driver call. */
typedef struct lochi_call_start {
    uint64_t host_ns;            /* time of the host; 0: the device is not measured */
    uint64_t device_ns_plus_one; /* time of the device; 0: there is no listener */
} lochi_call_start;

/* Begin and end one driver call: count it, and time it if the device is measured or there is a listener. */
LOCHI_SHARED lochi_call_start lochi_call_begin(loch_device *device, loch_driver_call call);
LOCHI_SHARED void lochi_call_end(loch_device *device, loch_driver_call call, lochi_call_start start);

/* Receives every driver call that has ended, with its time in nanoseconds: real, or modelled by a simulated device. */
typedef void lochi_call_listener(const loch_device *device, loch_driver_call call, uint64_t ns);

/* Sets the one listener; NULL for none. A call that is in progress may still reach the old one. */
void lochi_calls_listen(lochi_call_listener *listener);

/* Calls a slot of the driver: LOCHI_CALL(status, device, map, (device->self, ...)). Cancellation of the thread is
 * disabled during the call. */
#define LOCHI_CALL_SLOT(result, device, call, slot, arguments)                                                         \
    do {                                                                                                               \
        const int call_cancel = lochi_cancel_hold();                                                                   \
        const lochi_call_start call_start = lochi_call_begin((device), LOCH_CALL_##call);                              \
        (result) = (device)->driver->slot arguments;                                                                   \
        lochi_call_end((device), LOCH_CALL_##call, call_start);                                                        \
        lochi_cancel_restore(&call_cancel);                                                                            \
    } while (0)

#define LOCHI_CALL(result, device, call, arguments) LOCHI_CALL_SLOT(result, device, call, call, arguments)

#endif
