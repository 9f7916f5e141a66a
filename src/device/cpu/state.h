/* SPDX-License-Identifier: MIT */
/* An open CPU device. */
#ifndef LOCHI_CPU_STATE_H
#define LOCHI_CPU_STATE_H

#include "base/lock.h"
#include <stdbool.h>
#include <stddef.h>

#define LOCHI_CPU_GRANULE ((size_t)2 << 20) /* a huge page, so that one can stand behind every granule */
#define LOCHI_CPU_ALIGNMENT ((size_t)64)    /* a cache line */

typedef struct lochi_cpu {
    int node;      /* -1: not bound */
    bool huge;     /* ask for huge pages */
    bool can_move; /* the kernel takes pages away and leaves the addresses reserved */
    size_t total_bytes;
    size_t mapping_limit;
    lochi_lock lock;     /* LOCHI_RANK_CPU: the members below, and every handle's */
    size_t handle_bytes; /* memory promised to handles */
    size_t strangers;    /* handles whose pages came from elsewhere: each is a mapping of its own for the kernel */
} lochi_cpu;

#endif
