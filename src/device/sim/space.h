/* SPDX-License-Identifier: MIT */
/* Address space of simulated devices (space.c). Every function needs the lock of the simulator held. */
#ifndef LOCHI_SIM_SPACE_H
#define LOCHI_SIM_SPACE_H

#include "base/tree.h"
#include <loch/status.h>
#include <stdint.h>

#define LOCHI_SIM_RAW_UNIT ((size_t)512) /* unit and alignment of raw blocks below the large size */
#define LOCHI_SIM_WINDOW_BITS 46         /* address bits of one unbacked device */

/* A piece of a space, free or taken. */
typedef struct lochi_sim_extent {
    lochi_tree_node by_address; /* key: start */
    lochi_tree_node by_size;    /* key: size class, then place; only while free */
    size_t bytes;
} lochi_sim_extent;

typedef struct lochi_sim_space {
    lochi_tree by_address, by_size; /* the free extents; no two are adjacent */
    uintptr_t base;
} lochi_sim_space;

loch_status lochi_sim_space_init(lochi_sim_space *space, uintptr_t base, size_t bytes);
void lochi_sim_space_fini(lochi_sim_space *space);

/* Takes `bytes`, a multiple of LOCHI_SIM_RAW_UNIT. `alignment` is a power of two not below that unit. */
loch_status lochi_sim_space_take(lochi_sim_space *space, size_t bytes, size_t alignment, lochi_sim_extent **out);

/* Gives an extent back. Allocates no memory. NULL does nothing. */
void lochi_sim_space_give(lochi_sim_space *space, lochi_sim_extent *extent);

#endif
