/* SPDX-License-Identifier: MIT */
/* Growable blocks that hold more than they need. */
#ifndef LOCHI_POOL_SHRUNK_H
#define LOCHI_POOL_SHRUNK_H

#include "memory/pool/state.h"

/* Unmaps handles at the end of a growable block until at most `bytes` are committed, rounded up to handles. */
void lochi_pool_shrink(lochi_pool *pool, pool_block *block, size_t bytes);
/* Makes memory loose that growable blocks no longer need and whose stream has passed. */
void lochi_pool_drop_shrunk(lochi_pool *pool);

#endif
