/* SPDX-License-Identifier: MIT */
/* Prices: the size of new handles, and whether memory is created or remapped. */
#ifndef LOCHI_POOL_PRICE_H
#define LOCHI_POOL_PRICE_H

#include "memory/pool/heap.h"

/* Returns the size of new handles for a request. */
size_t lochi_pool_choose_handle(const lochi_pool *pool, size_t request);
/* Tells whether `missing` bytes may be newly created instead of remapped. */
bool lochi_pool_may_take_extra(const lochi_pool *pool, const pool_want *want, size_t missing);
/* Adds the time spent on remapping since `start_ns`. Older times count less and less. */
void lochi_pool_note_time(lochi_pool *pool, uint64_t start_ns);

#endif
