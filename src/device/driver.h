/* SPDX-License-Identifier: MIT */
/* The table of drivers, and the abilities of a driver (driver.c). */
#ifndef LOCHI_DRIVER_H
#define LOCHI_DRIVER_H

#include "base/shared.h"
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

/* Returns the bytes that new handles of a device may have, if its driver counts them itself; SIZE_MAX if it has to ask
 * the system (loch_device_calculate_memory). Takes a lock for some instructions, and makes no driver call. */
size_t lochi_device_count_room(const loch_device *device);
/* Reads how much memory of a kind there is in all: that of the device, or what this process may have of the host's for
 * pinned memory. Returns 0 if that is not known. Reads files for pinned memory. */
size_t lochi_device_read_total(const loch_device *device, loch_memory_kind kind);

/* Returns whether the driver copies rows in one call. */
bool lochi_device_copies_rows(const loch_device *device);

/* Returns whether the driver recognises memory that another library allocated. */
bool lochi_device_knows_addresses(const loch_device *device);

/* Returns whether the driver can protect memory from writes of the host. */
bool lochi_device_protects(const loch_device *device);

/* Protects whole host pages, or makes them writable again. Other data on the same pages is protected too. */
loch_status lochi_device_protect(loch_device *device, void *address, size_t bytes, loch_access access);

/* Returns whether the driver can discard pages. */
bool lochi_device_discards(const loch_device *device);

/* Gives the physical memory of whole host pages back to the system. The pages stay usable, their contents do not. */
loch_status lochi_device_discard(loch_device *device, void *address, size_t bytes);
size_t lochi_device_page_bytes(void);

/* Returns whether the driver can make the device current in a thread (current.h). */
LOCHI_SHARED bool lochi_device_enters(const loch_device *device);

#endif
