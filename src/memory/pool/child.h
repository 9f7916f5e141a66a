/* SPDX-License-Identifier: MIT */
/* Pools inside pools. */
#ifndef LOCHI_POOL_CHILD_H
#define LOCHI_POOL_CHILD_H

#include "memory/pool/state.h"

/* How a child comes into a new pool: its options, read. */
typedef struct pool_descent {
    lochi_pool *parent;
    loch_child_options options;
} pool_descent;

/* Takes a child's part of its parent: after the device's facts are known, before anybody else sees the pool. */
loch_status lochi_child_open(lochi_pool *pool, const pool_descent *descent);
/* Notes all streams that used a range with the parent, so that it goes back behind them; or waits. */
void lochi_child_note_uses(lochi_pool *pool);
/* Gives the part back and lets go of the parent; nothing for a pool without. Without locks. */
void lochi_child_close(lochi_pool *pool);

#endif
