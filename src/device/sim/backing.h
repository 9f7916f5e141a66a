/* SPDX-License-Identifier: MIT */
/* The contents of backed simulated devices (backing.c). Under the lock of the simulator. */
#ifndef LOCHI_SIM_BACKING_H
#define LOCHI_SIM_BACKING_H

#include "device/sim/state.h"

/* Returns the page size of the system. */
size_t lochi_sim_page_bytes(void);

/* Takes the place of an object in the file away, and with it the contents. Does nothing if it has none. */
void lochi_sim_object_unplace(lochi_sim_object *object);

/* Closes the file in the child of a fork: the parent's contents stay, and devices of the child get a file of their
 * own. */
void lochi_sim_file_forked(void);

/* Reserves aligned, inaccessible addresses of the process; NULL on failure. */
void *lochi_sim_host_reserve(size_t bytes, size_t alignment);

/* Makes the contents of a span with contents accessible at its address. E_DRIVER, E_HOST_MEMORY. */
loch_status lochi_sim_host_map(lochi_sim_span *span);

/* Checks that the host has memory for the backed memory among `uses`. E_HOST_MEMORY if not. */
loch_status lochi_sim_host_check(const lochi_sim_use *uses, size_t count);

#endif
