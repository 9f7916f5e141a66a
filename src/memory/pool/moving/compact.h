/* SPDX-License-Identifier: MIT */
/* Compaction. */
#ifndef LOCHI_POOL_COMPACT_H
#define LOCHI_POOL_COMPACT_H

#include "memory/pool/state/state.h"

/* The goal of a compaction. */
typedef enum pool_goal {
    POOL_GOAL_ALL,    /* join as much as possible */
    POOL_GOAL_PIECE,  /* join bytes in one piece */
    POOL_GOAL_HANDLES /* free bytes in whole handles, for mapping next to new ones */
} pool_goal;

/* Moves blocks until `bytes` (0: as much as possible) can be allocated on the lane. LOCH_OK: the goal is reached.
 * E_FRAGMENTED: it cannot be reached. */
loch_status lochi_pool_compact(lochi_pool *pool, pool_lane *lane, pool_goal goal, size_t bytes);

#endif
