/* SPDX-License-Identifier: MIT */
/* An open CPU device. */
#ifndef LOCHI_CPU_STATE_H
#define LOCHI_CPU_STATE_H

#include "base/lock.h"
#include <stdbool.h>
#include <stddef.h>

#define LOCHI_CPU_GRANULE ((size_t)2 << 20) /* a huge page, so that each granule can be one huge page */
#define LOCHI_CPU_ALIGNMENT ((size_t)64)    /* a cache line */

typedef struct lochi_cpu {
    int node;      /* NUMA node; -1 if not bound */
    bool huge;     /* ask for huge pages */
    bool can_move; /* the kernel can move pages away and leave the addresses reserved */
    size_t total_bytes;
    size_t mapping_limit;
    lochi_lock lock;     /* LOCHI_RANK_CPU: guards the members below and those of every handle */
    size_t handle_bytes; /* bytes of all handles */
    size_t strangers;    /* handles whose pages were moved: each is a separate mapping for the kernel */
} lochi_cpu;

#endif
