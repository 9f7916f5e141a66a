/* SPDX-License-Identifier: MIT */
/* What the system says of its processors and memory (system.c). `root` stands before every path, "" for the real system. */
#ifndef LOCHI_CPU_SYSTEM_H
#define LOCHI_CPU_SYSTEM_H

#include <loch/device.h>
#include <stdbool.h>

/* Reads the memory of the machine, or of one node (node >= 0), within the limits of the process's control group. Both figures
 * are 0 when the system does not say. */
void lochi_cpu_read_memory(const char *root, int node, loch_memory_info *out);

/* Reads the total alone, which costs fewer files. 0: the system does not say. */
size_t lochi_cpu_read_total(const char *root, int node);

/* Tells whether a node exists. */
bool lochi_cpu_has_node(const char *root, int node);

/* Returns the number of the highest node, -1 when the system does not say. */
int lochi_cpu_last_node(const char *root);

/* Returns how many mappings a process may have, 0 when the system does not say. */
size_t lochi_cpu_mapping_limit(const char *root);

/* Reads the name of the processor, at most `bytes` with its final zero; "CPU" when the system does not say. */
void lochi_cpu_read_model(const char *root, char *model, size_t bytes);

/* Returns the size of the last-level cache, 0 when the system does not say. */
size_t lochi_cpu_read_cache(const char *root);

#endif
