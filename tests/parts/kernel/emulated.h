/* SPDX-License-Identifier: MIT */
/* Loch's own kernels, compiled for the host and run thread by thread (emulated.cpp). */
#ifndef LOCH_TEST_EMULATED_H
#define LOCH_TEST_EMULATED_H

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What is in place of the marks: codes of types, and sizes of elements. */
typedef struct emulated_marks {
    unsigned from, to, from_bytes, to_bytes;
} emulated_marks;

/* Runs all blocks of a kernel of parts/kernel/cuda by name. Returns false if there is no kernel of that name. */
bool emulated_run(const char *name, emulated_marks marks, unsigned blocks, const void *job);

#ifdef __cplusplus
}
#endif

#endif
