/* SPDX-License-Identifier: MIT */
/* Call stacks, and the modules that their addresses lie in (stack.c). */
#ifndef LOCHI_RECORDER_STACK_H
#define LOCHI_RECORDER_STACK_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

/* One loaded module: the program, or a shared library. */
typedef struct recorder_module {
    uint64_t start, end; /* addresses of its code and data */
    uint64_t offset;     /* to be added to an address for the address in the file */
    uint8_t id_bytes;
    uint8_t id[64]; /* build id */
    char path[512];
} recorder_module;

typedef struct recorder_modules {
    uint64_t changes; /* how often the process has loaded a module */
    size_t count, room;
    recorder_module list[];
} recorder_modules;

/* Finds the library among the modules of the process, before stacks are captured. */
void lochi_recorder_stack_open(void);

/* Captures the return addresses of the calling thread, innermost first, from the call of the library on if the library
 * is a module of its own. Returns how many. `most` is at most LOCH_RECORDER_STACK_MAX. */
size_t lochi_recorder_capture(uintptr_t *frames, size_t most);

/* Lists the modules of the process; NULL if none was loaded since there were `changes`, or there is no memory. Free the
 * list with lochi_recorder_free_modules. */
recorder_modules *lochi_recorder_list_modules(uint64_t changes);
void lochi_recorder_free_modules(recorder_modules *modules);

#endif
