/* SPDX-License-Identifier: MIT */
/* The table of drivers, and what a driver can do (driver.c). */
#ifndef LOCHI_DRIVER_H
#define LOCHI_DRIVER_H

#include "device/state.h"

/* In the child of a fork: asks the driver of an open device whether it works on, and notes the answer. */
void lochi_driver_tell_forked(loch_device *device);

/* Returns what a driver of the table has the slots for; a device must not claim more. */
uint32_t lochi_driver_possible(const loch_driver *driver);

/* Tells whether driver calls of the device take a modelled time, of which the clock of the host says nothing. */
bool lochi_device_is_modelled(const loch_device *device);

/* Tells whether the driver copies rows in one call. */
bool lochi_device_copies_rows(const loch_device *device);

/* Tells whether the driver can protect memory from writes of the host. */
bool lochi_device_protects(const loch_device *device);

/* Protects whole pages of the host, or makes them writable again: what lies in a page beside the memory is protected, too. */
loch_status lochi_device_protect(loch_device *device, void *address, size_t bytes, loch_access access);
size_t lochi_device_page_bytes(void);

/* Tells whether the driver can make the device current in a thread (current.h). */
bool lochi_device_enters(const loch_device *device);

#endif
