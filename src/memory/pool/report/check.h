/* SPDX-License-Identifier: MIT */
/* Checks the invariants of a pool, for tests. */
#ifndef LOCHI_POOL_CHECK_H
#define LOCHI_POOL_CHECK_H

#include "memory/pool/state/state.h"

/* Returns a description of the first invariant that is broken; NULL if all hold. Takes the pool's lock unless the
 * thread has it. The gate must be stopped, and both locks held, if other threads use the pool. */
const char *lochi_pool_check(lochi_pool *pool);

#endif
