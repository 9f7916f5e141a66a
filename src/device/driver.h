/* SPDX-License-Identifier: MIT */
/* The table of drivers, and the abilities of a driver (driver.c). */
#ifndef LOCHI_DRIVER_H
#define LOCHI_DRIVER_H

#include "device/state.h"

/* Asks the driver of an open device whether the device survived a fork, and stores the answer. Called in the child. */
void lochi_driver_tell_forked(loch_device *device);

/* Returns the capabilities for which a driver of the table has slots. A device must not claim more. */
uint32_t lochi_driver_possible(const loch_driver *driver);

/* Reads the clock by which the time of driver calls is measured, in nanoseconds: the host's, or the modelled time of a
 * simulated device. */
uint64_t lochi_device_now_ns(const loch_device *device);
/* Returns the time that the program has run by that clock, in nanoseconds. */
uint64_t lochi_device_age_ns(const loch_device *device);

/* Returns whether the driver copies rows in one call. */
bool lochi_device_copies_rows(const loch_device *device);

/* Returns whether the driver recognises memory that another library allocated. */
bool lochi_device_knows_addresses(const loch_device *device);

/* Returns whether the driver can protect memory from writes of the host. */
bool lochi_device_protects(const loch_device *device);

/* Protects whole host pages, or makes them writable again. Other data on the same pages is protected too. */
loch_status lochi_device_protect(loch_device *device, void *address, size_t bytes, loch_access access);
size_t lochi_device_page_bytes(void);

/* Returns whether the driver can make the device current in a thread (current.h). */
bool lochi_device_enters(const loch_device *device);

#endif
