/* SPDX-License-Identifier: MIT */
/* elfutils' libdw, found at run time. Its few functions that are used here are declared in libdw.c. */
#ifndef LOCH_INSIGHT_LIBDW_H
#define LOCH_INSIGHT_LIBDW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct insight_debug insight_debug;

/* Opens the debug information of a file, also if it is in a file of its own that the build id names. NULL if there is
 * no libdw, or no information. `file` is an open descriptor and stays the caller's. */
insight_debug *lochi_insight_debug_open(const char *path, int file);
void lochi_insight_debug_close(insight_debug *debug);

/* Finds the function of an address, and its line in the source. Each may be NULL or 0 if it is not known. The texts are
 * borrowed from `debug`. */
void lochi_insight_debug_find(insight_debug *debug, uint64_t address, const char **function, const char **file,
                              int *line);

/* Writes the name of a C++ function as in the source, if it is one and libstdc++ is found. Returns false otherwise. */
bool lochi_insight_debug_demangle(const char *name, char *text, size_t bytes);

#endif
