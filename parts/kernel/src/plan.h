/* SPDX-License-Identifier: MIT */
/* How work between layouts becomes launches of kernels (plan.c). */
#ifndef LOCH_KERNEL_PLAN_H
#define LOCH_KERNEL_PLAN_H

#include "text.h"
#include <cuda/job.h>
#include <loch/driver.h>
#include <stdbool.h>
#include <stdint.h>

/* The kernels: those of a kind differ in the sizes of elements. */
typedef enum lochi_plan_kind {
    LOCHI_PLAN_CHUNKS,
    LOCHI_PLAN_EACH,
    LOCHI_PLAN_TILES,
    LOCHI_PLAN_FILL,
    LOCHI_PLAN_GATHER,
    LOCHI_PLAN_SCATTER
} lochi_plan_kind;

/* One launch: a kernel, its parameters, and the number of its blocks. */
typedef struct lochi_plan {
    lochi_plan_kind kind;
    unsigned from_bytes, to_bytes; /* of an element */
    unsigned from, to;             /* codes of types, for the marks */
    unsigned blocks;
    bool is_last; /* of the launches of the work */
    union {
        kernel_chunks chunks;
        kernel_tiles tiles;
        kernel_rows rows;
    } job;
} lochi_plan;

/* Makes the next launch of some work. `*done` is 0 for the first, and is advanced for the next. Returns false if there
 * is no kernel for the work: elements of other types lie at addresses that are not multiples of their sizes. */
bool lochi_kernel_plan_make(const loch_strided *work, size_t *done, lochi_plan *out);

/* Returns a number that tells kernels apart; never 0. */
uint32_t lochi_kernel_plan_key(const lochi_plan *plan);

/* Writes the name of the kernel in its file, and returns the file. `compute_major` is that of the device. */
lochi_text_file lochi_kernel_plan_name(const lochi_plan *plan, int compute_major, char name[32]);

#endif
