/* SPDX-License-Identifier: MIT */
/* Compaction. */
#ifndef LOCHI_POOL_COMPACT_H
#define LOCHI_POOL_COMPACT_H

#include "memory/pool/state.h"

/* What a compaction is to free. */
typedef enum pool_goal {
    POOL_GOAL_ALL,    /* as much as can be joined */
    POOL_GOAL_PIECE,  /* bytes in one piece */
    POOL_GOAL_HANDLES /* bytes in whole handles, which new ones can stand beside */
} pool_goal;

/* Moves blocks until `bytes` (0 for all) can be had on the lane. LOCH_OK when that is so now. E_FRAGMENTED: it cannot be reached. */
loch_status lochi_pool_compact(lochi_pool *pool, pool_lane *lane, pool_goal goal, size_t bytes);

#endif
