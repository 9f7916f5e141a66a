/* SPDX-License-Identifier: MIT */
/* Gives memory back to the device. */
#ifndef LOCHI_POOL_TRIM_H
#define LOCHI_POOL_TRIM_H

#include "memory/pool/state/state.h"
#include "memory/pool/trim/discard.h"
#include "memory/pool/trim/idle.h"
#include "memory/pool/trim/process.h"
#include "memory/pool/trim/shrunk.h"

/* Flushes the threads' caches, and merges whole pieces. */
void lochi_pool_empty_caches(lochi_pool *pool);
/* Frees what threads, slabs and streams hold, as far as possible, and merges it. Gives no idle memory back. */
void lochi_pool_gather(lochi_pool *pool);
/* Gathers as lochi_pool_gather does. Returns the bytes that a trim can give back at most, after it has waited for
 * streams. */
size_t lochi_pool_count_trim(lochi_pool *pool);
/* Gives memory back until at most `keep` bytes are free. Waits for streams. Returns the bytes given back. */
size_t lochi_pool_trim(lochi_pool *pool, size_t keep);

#endif
