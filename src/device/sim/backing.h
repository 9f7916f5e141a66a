/* SPDX-License-Identifier: MIT */
/* The file and the addresses behind a backed simulated device (backing.c). */
#ifndef LOCHI_SIM_BACKING_H
#define LOCHI_SIM_BACKING_H

#include "device/sim/state.h"

/* Returns the page size of the system. */
size_t lochi_sim_page_bytes(void);

/* Creates a file with one reference. */
loch_status lochi_sim_file_create(lochi_sim_file **out);

/* Releases a reference, under the lock of the simulator. The last release closes the file. NULL does nothing. */
void lochi_sim_file_release(lochi_sim_file *file);

/* Reserves aligned, inaccessible addresses of the process; NULL on failure. */
void *lochi_sim_host_reserve(size_t bytes, size_t alignment);

/* Maps the memory of a backed object at reserved addresses. */
loch_status lochi_sim_host_map(void *at, const lochi_sim_object *object);

#endif
