/* SPDX-License-Identifier: MIT */
/* Handles on the CPU (handle.c). */
#ifndef LOCHI_CPU_HANDLE_H
#define LOCHI_CPU_HANDLE_H

#include "device/cpu/state.h"
#include <loch/driver.h>

/* Returns whether pages can be moved away from reserved addresses in one step (Linux 5.7 and later; not under
 * valgrind). */
bool lochi_cpu_probe_move(void);

/* Slots of the driver. */
loch_status lochi_cpu_handle_create(void *self, size_t bytes, const loch_handle_options *options,
                                    loch_driver_handle *out);
loch_status lochi_cpu_handle_release(void *self, loch_driver_handle handle, size_t bytes);
loch_status lochi_cpu_handle_export(void *self, loch_driver_handle handle, loch_share share, void *out);
loch_status lochi_cpu_handle_import(void *self, loch_share share, const void *shared, size_t bytes,
                                    loch_driver_handle *out);
loch_status lochi_cpu_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                          size_t peers_count);
loch_status lochi_cpu_unmap(void *self, void *address, size_t bytes, loch_driver_handle handle);
loch_status lochi_cpu_remap(void *self, void *from, void *to, size_t bytes, loch_driver_handle handle);

#endif
