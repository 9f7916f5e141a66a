/* SPDX-License-Identifier: MIT */
/* Allocations of the program's own files, which fail on demand: these files are compiled with calloc, malloc and
 * realloc named as below (tests/CMakeLists.txt). */
#ifndef LOCH_TEST_TOOL_HEAP_H
#define LOCH_TEST_TOOL_HEAP_H

#include <stddef.h>
#include <stdint.h>

/* Number of allocations that succeed from now on; UINT64_MAX: all of them. */
extern uint64_t tool_heap_left;

/* Number of allocations so far. */
extern uint64_t tool_heap_count;

void *tool_heap_calloc(size_t count, size_t bytes);
void *tool_heap_malloc(size_t bytes);
void *tool_heap_realloc(void *memory, size_t bytes);

#endif
