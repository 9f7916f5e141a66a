/* SPDX-License-Identifier: MIT */
/* Growable blocks with more memory than they need. */
#ifndef LOCHI_POOL_SHRUNK_H
#define LOCHI_POOL_SHRUNK_H

#include "memory/pool/state/state.h"

/* Unmaps handles at the end of a growable block until at most `bytes`, rounded up to handles, are committed. */
void lochi_pool_shrink(lochi_pool *pool, pool_block *block, size_t bytes);
/* Unmaps memory that growable blocks no longer need and whose stream has passed. The handles become unmapped. */
void lochi_pool_drop_shrunk(lochi_pool *pool);

#endif
