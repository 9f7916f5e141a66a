/* SPDX-License-Identifier: MIT */
/* Giving memory back to the device. */
#ifndef LOCHI_POOL_TRIM_H
#define LOCHI_POOL_TRIM_H

#include "memory/pool/state.h"

/* Takes back what threads keep, and merges whole blocks again. */
void lochi_pool_empty_caches(lochi_pool *pool);
/* Gives memory back until at most `keep` bytes are free; returns what went. Waits for streams. */
size_t lochi_pool_trim(lochi_pool *pool, size_t keep);

#endif
