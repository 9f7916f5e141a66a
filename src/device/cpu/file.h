/* SPDX-License-Identifier: MIT */
/* Files in memory behind the CPU's shareable handles (file.c). */
#ifndef LOCHI_CPU_FILE_H
#define LOCHI_CPU_FILE_H

#include "device/cpu/state.h"
#include <loch/driver.h>

/* Creates a file of `bytes` zeroes, whose size cannot change any more. `out` is its descriptor, closed by exec. */
loch_status lochi_cpu_file_create(size_t bytes, int *out);

/* Duplicates the descriptor of such a file. */
loch_status lochi_cpu_file_duplicate(int file, int *out);

/* Duplicates a descriptor that another process passed. E_INVALID: the descriptor is not such a file, or has another
 * size. */
loch_status lochi_cpu_file_import(int descriptor, size_t bytes, int *out);

/* Maps a file at reserved addresses. On failure the addresses are reserved as before. */
loch_status lochi_cpu_file_map(const lochi_cpu *cpu, int file, void *address, size_t bytes);

/* Removes the mapping of a file; the addresses stay reserved. */
loch_status lochi_cpu_file_unmap(void *address, size_t bytes);

#endif
