/* SPDX-License-Identifier: MIT */
/* Memory of simulated devices in one block (memory.c). */
#ifndef LOCHI_SIM_MEMORY_H
#define LOCHI_SIM_MEMORY_H

#include "device/sim/state.h"

/* Creates physical memory with one reference. It takes `charged` bytes of the capacity, 0 for host memory. Before it
 * fails it waits for stream-ordered frees under way, and may drop the lock meanwhile. Under the lock of the
 * simulator. */
loch_status lochi_sim_object_create(lochi_sim *sim, size_t bytes, size_t charged, lochi_sim_object **out);

/* Frees all memory of a device that closes. Under the lock of the simulator. */
void lochi_sim_memory_close(lochi_sim *sim);

/* Slots of the driver. */
loch_status lochi_sim_memory_info(void *self, loch_memory_info *out);
loch_status lochi_sim_raw_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_sim_raw_free(void *self, void *address, size_t bytes);
loch_status lochi_sim_pinned_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_sim_pinned_free(void *self, void *address, size_t bytes);
loch_status lochi_sim_managed_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_sim_managed_free(void *self, void *address, size_t bytes);
loch_status lochi_sim_host_register(void *self, void *address, size_t bytes);
loch_status lochi_sim_host_unregister(void *self, void *address, size_t bytes);
loch_status lochi_sim_ordered_alloc(void *self, size_t bytes, void *stream, void **out);
loch_status lochi_sim_ordered_free(void *self, void *address, size_t bytes, void *stream);
loch_status lochi_sim_peer_enable(void *self, void *peer);
loch_status lochi_sim_address_query(void *self, const void *address, loch_address_info *out);

#endif
