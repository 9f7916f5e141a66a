/* SPDX-License-Identifier: MIT */
/* Virtual memory of simulated devices (virtual.c). */
#ifndef LOCHI_SIM_VIRTUAL_H
#define LOCHI_SIM_VIRTUAL_H

#include "device/sim/state.h"

/* Unmaps and unreserves everything on a device that closes. Under the lock of the simulator. */
void lochi_sim_virtual_close(lochi_sim *sim);

/* Slots of the driver. */
loch_status lochi_sim_reserve(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_sim_unreserve(void *self, void *address, size_t bytes);
loch_status lochi_sim_handle_create(void *self, size_t bytes, const loch_handle_options *options,
                                    loch_driver_handle *out);
loch_status lochi_sim_handle_release(void *self, loch_driver_handle handle, size_t bytes);
loch_status lochi_sim_handle_export(void *self, loch_driver_handle handle, loch_share share, void *out);
loch_status lochi_sim_handle_import(void *self, loch_share share, const void *shared, size_t bytes,
                                    loch_driver_handle *out);
loch_status lochi_sim_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                          size_t peers_count);
loch_status lochi_sim_unmap(void *self, void *address, size_t bytes, loch_driver_handle handle);

#endif
