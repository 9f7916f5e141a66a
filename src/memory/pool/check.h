/* SPDX-License-Identifier: MIT */
/* The walk over the invariants. */
#ifndef LOCHI_POOL_CHECK_H
#define LOCHI_POOL_CHECK_H

#include "memory/pool/state.h"

/* Returns what does not hold; NULL when all does. The gate is stopped. For tests. */
const char *lochi_pool_check(lochi_pool *pool);

#endif
