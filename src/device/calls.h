/* SPDX-License-Identifier: MIT */
/* Counting driver calls (calls.c). */
#ifndef LOCHI_CALLS_H
#define LOCHI_CALLS_H

#include "base/cancel.h"
#include "device/state.h"

/* Begin and end one driver call: count it, and time it if the device is measured. */
uint64_t lochi_call_begin(loch_device *device, loch_driver_call call);
void lochi_call_end(loch_device *device, loch_driver_call call, uint64_t start_ns);

/* Calls a slot of the driver: LOCHI_CALL(status, device, map, (device->self, ...)). Cancellation of the thread is
 * disabled during the call. */
#define LOCHI_CALL_SLOT(result, device, call, slot, arguments)                                                         \
    do {                                                                                                               \
        const int call_cancel = lochi_cancel_hold();                                                                   \
        uint64_t call_start_ns = lochi_call_begin((device), LOCH_CALL_##call);                                         \
        (result) = (device)->driver->slot arguments;                                                                   \
        lochi_call_end((device), LOCH_CALL_##call, call_start_ns);                                                     \
        lochi_cancel_restore(&call_cancel);                                                                            \
    } while (0)

#define LOCHI_CALL(result, device, call, arguments) LOCHI_CALL_SLOT(result, device, call, call, arguments)

#endif
