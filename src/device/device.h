/* SPDX-License-Identifier: MIT */
/* The table of open devices. Also includes the structs of devices and streams for the layers above. */
#ifndef LOCHI_DEVICE_H
#define LOCHI_DEVICE_H

#include "device/calls.h"
#include "device/driver.h"
#include "device/forked.h"
#include "device/stream.h"

/* Calls `visit` for every open device, under the lock of the table of devices, until it returns true. Returns
 * whether it did. */
bool lochi_device_any(bool (*visit)(loch_device *device, void *user), void *user);

#endif
