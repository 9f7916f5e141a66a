/* SPDX-License-Identifier: MIT */
/* The CPU driver for other rooms, and what the system reports about the host's memory. */
#ifndef LOCHI_CPU_H
#define LOCHI_CPU_H

#include "device/cpu/system.h"
#include <loch/driver.h>

extern const loch_driver lochi_cpu_driver;

/* Returns the bytes that new handles of a device may have: its memory, less that of its handles. Reads no file. */
size_t lochi_cpu_count_room(void *self);

#endif
