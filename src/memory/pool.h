/* SPDX-License-Identifier: MIT */
/* The pool as the rest of src/memory sees it. The ways in and out without a lock are in pool_quick.h. */
#ifndef LOCHI_POOL_H
#define LOCHI_POOL_H

#include "memory/allocator.h"
#include <loch/pool.h>

typedef struct lochi_pool lochi_pool;

/* Sends everybody the long way while the count is not 0; returns when nobody is on the short one any more. */
void lochi_pool_close_gate(lochi_pool *pool);
void lochi_pool_open_gate(lochi_pool *pool);

#endif
