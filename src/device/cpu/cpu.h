/* SPDX-License-Identifier: MIT */
/* The inside of the CPU driver: an open CPU device, and what the system says. */
#ifndef LOCHI_CPU_H
#define LOCHI_CPU_H

#include "base/lock.h"
#include <loch/driver.h>
#include <stdbool.h>

#define LOCHI_CPU_GRANULE ((size_t)2 << 20) /* a huge page, so that one can stand behind every granule */
#define LOCHI_CPU_ALIGNMENT ((size_t)64)    /* a cache line */

typedef struct lochi_cpu {
    int node;      /* -1: not bound */
    bool huge;     /* ask for huge pages */
    bool can_move; /* the kernel takes pages away and leaves the addresses reserved */
    size_t total_bytes;
    size_t mapping_limit;
    lochi_lock lock;     /* LOCHI_RANK_CPU: the members below, and every handle's */
    size_t handle_bytes; /* memory promised to handles */
    size_t strangers;    /* handles whose pages came from elsewhere: each is a mapping of its own for the kernel */
} lochi_cpu;

/* --- memory.c --- */

/* Whether pages can be moved from under reserved addresses in one step (Linux 5.7 and later; not under valgrind). */
bool lochi_cpu_probe_move(void);

loch_status lochi_cpu_raw_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_cpu_raw_free(void *self, void *address, size_t bytes);
loch_status lochi_cpu_reserve(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_cpu_unreserve(void *self, void *address, size_t bytes);
loch_status lochi_cpu_commit(void *self, void *address, size_t bytes);
loch_status lochi_cpu_decommit(void *self, void *address, size_t bytes);
loch_status lochi_cpu_protect(void *self, void *address, size_t bytes, loch_access access);

/* Puts an error number of the system into the record: out of memory is E_DEVICE_MEMORY, for this is the device. */
loch_status lochi_cpu_fail(int error, const char *what, size_t bytes);

/* --- handle.c --- */

loch_status lochi_cpu_handle_create(void *self, size_t bytes, const loch_handle_options *options,
                                    loch_driver_handle *out);
loch_status lochi_cpu_handle_release(void *self, loch_driver_handle handle, size_t bytes);
loch_status lochi_cpu_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                          size_t peers_count);
loch_status lochi_cpu_unmap(void *self, void *address, size_t bytes, loch_driver_handle handle);
loch_status lochi_cpu_remap(void *self, void *from, void *to, size_t bytes, loch_driver_handle handle);

/* --- system.c; `root` stands before every path, "" for the real system --- */

/* Memory of the machine, or of one node (node >= 0), within the limits of the process's control group. Both are 0 when
 * the system does not say. */
void lochi_cpu_read_memory(const char *root, int node, loch_memory_info *out);

/* Reads the total alone, which costs fewer files. 0: the system does not say. */
size_t lochi_cpu_read_total(const char *root, int node);

/* Whether a node exists; the number of the highest one, -1 when the system does not say. */
bool lochi_cpu_has_node(const char *root, int node);
int lochi_cpu_last_node(const char *root);

/* How many mappings a process may have; 0 when the system does not say. */
size_t lochi_cpu_mapping_limit(const char *root);

/* The processor's name, at most `bytes` with its final zero; "CPU" when the system does not say. */
void lochi_cpu_read_model(const char *root, char *model, size_t bytes);

/* Size of the last-level cache; 0 when the system does not say. */
size_t lochi_cpu_read_cache(const char *root);

#endif
