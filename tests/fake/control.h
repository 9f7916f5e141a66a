/* SPDX-License-Identifier: MIT */
/* What a test may ask of the CUDA driver for tests, which is a test double. The functions are found by dlsym in the
 * library that LOCH_CUDA_LIBRARY names; a real driver has none of them. */
#ifndef LOCH_TEST_FAKE_CONTROL_H
#define LOCH_TEST_FAKE_CONTROL_H

#include <stddef.h>
#include <stdint.h>

/* What is alive. */
typedef struct fake_cuda_census {
    size_t retained;                  /* of primary contexts */
    size_t contexts, streams, events; /* made by callers */
    size_t graphs, executables, modules;
    size_t reservations, handles, mappings;
    size_t allocations, managed, pinned, registered;
    size_t bytes; /* of all devices */
} fake_cuda_census;

/* When calls fail. `after` calls succeed before. */
typedef struct fake_cuda_fault {
    const char *call; /* NULL: any entry point that takes something or works */
    uint64_t after;
    int is_forever;
    unsigned code;
} fake_cuda_fault;

/* Changes switches, as LOCH_TEST_FAKE_CUDA writes them. Returns 0, or -1 for text that is wrong. */
typedef int fake_cuda_set_function(const char *switches);

/* Sets or, with NULL, clears the fault, and counts calls from 0. */
typedef void fake_cuda_fail_function(const fake_cuda_fault *fault);

/* Returns the calls since the last fake_cuda_fail that a fault could have met. */
typedef uint64_t fake_cuda_calls_function(void);

/* Returns the name of the last call that a fault met, or "none". */
typedef const char *fake_cuda_struck_function(void);

/* Returns the calls of one entry point since the library was loaded. */
typedef uint64_t fake_cuda_count_function(const char *call);

typedef void fake_cuda_census_function(fake_cuda_census *out);

/* Loses all contexts with a code; 0 brings them back, which no driver can. */
typedef void fake_cuda_lose_function(unsigned code);

#endif
