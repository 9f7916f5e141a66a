/* SPDX-License-Identifier: MIT */
/* Child pools. */
#ifndef LOCHI_POOL_CHILD_H
#define LOCHI_POOL_CHILD_H

#include "memory/pool/state/state.h"

/* The parent and the checked options of a new child pool. */
typedef struct pool_descent {
    lochi_pool *parent;
    loch_child_options options;
} pool_descent;

/* Takes a child's memory from its parent. Called after the device's properties are read and before another thread
 * can use the pool. */
loch_status lochi_child_open(lochi_pool *pool, const pool_descent *descent);
/* Records all streams that used a range with the parent, so that the free is ordered after them. Waits for a stream
 * that cannot be recorded. */
void lochi_child_note_uses(lochi_pool *pool);
/* Gives a child's memory back and releases the parent. Does nothing for a pool without a parent. Call without locks. */
void lochi_child_close(lochi_pool *pool);

#endif
