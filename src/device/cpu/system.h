/* SPDX-License-Identifier: MIT */
/* Properties of processors and memory as the system reports them (system.c). `root` is the beginning of every path,
 * "" for the real system. */
#ifndef LOCHI_CPU_SYSTEM_H
#define LOCHI_CPU_SYSTEM_H

#include <loch/device.h>
#include <stdbool.h>

/* Reads the memory of the machine, or of one node (node >= 0), within the limits of the process's control group.
 * Both values are 0 if the system does not report them. */
void lochi_cpu_read_memory(const char *root, int node, loch_memory_info *out);

/* Reads only the total, which needs fewer files. Returns 0 if the system does not report it. */
size_t lochi_cpu_read_total(const char *root, int node);

/* Returns whether a node exists. */
bool lochi_cpu_has_node(const char *root, int node);

/* Returns the number of the highest node; -1 if the system does not report it. */
int lochi_cpu_last_node(const char *root);

/* Returns the number of mappings that a process may have; 0 if the system does not report it. */
size_t lochi_cpu_mapping_limit(const char *root);

/* Reads the name of the processor, at most `bytes` including the final zero; "CPU" if the system does not report it. */
void lochi_cpu_read_model(const char *root, char *model, size_t bytes);

/* Returns the size of the last-level cache in bytes; 0 if the system does not report it. */
size_t lochi_cpu_read_cache(const char *root);

#endif
