/* SPDX-License-Identifier: MIT */
/* CPU memory: raw blocks and reserved addresses (memory.c). */
#ifndef LOCHI_CPU_MEMORY_H
#define LOCHI_CPU_MEMORY_H

#include "device/cpu/state.h"
#include <loch/driver.h>

/* Writes the error record for an error number of the system and returns the status. Out of memory is
 * E_DEVICE_MEMORY, because the CPU is the device. */
loch_status lochi_cpu_fail(int error, const char *what, size_t bytes);

/* Binds one page to a node and frees it. Returns 0 or the error number: kernels without NUMA, containers that forbid
 * it and emulators of other processors refuse. */
int lochi_cpu_probe_bind(int node);

/* Binds fresh memory to the device's node and asks for huge pages. A failed bind is a failure, because the caller
 * asked for the node; huge pages are only a hint. */
loch_status lochi_cpu_advise(const lochi_cpu *cpu, void *address, size_t bytes);

/* Slots of the driver. */
loch_status lochi_cpu_raw_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_cpu_raw_free(void *self, void *address, size_t bytes);
loch_status lochi_cpu_reserve(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_cpu_unreserve(void *self, void *address, size_t bytes);
loch_status lochi_cpu_commit(void *self, void *address, size_t bytes);
loch_status lochi_cpu_decommit(void *self, void *address, size_t bytes);
/* Drops the pages of committed memory, which stays accessible and reads as zeros then. Pages of a file stay. */
loch_status lochi_cpu_discard(void *self, void *address, size_t bytes);
loch_status lochi_cpu_protect(void *self, void *address, size_t bytes, loch_access access);

#endif
