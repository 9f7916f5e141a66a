/* SPDX-License-Identifier: MIT */
/* Memory at a given address (loch_request.address). Both locks are held. */
#ifndef LOCHI_POOL_EXACT_H
#define LOCHI_POOL_EXACT_H

#include "memory/pool/heap/heap.h"

/* Takes the memory at `want->at` for a block in use, and enters the block in the table of pages. E_BUSY,
 * E_OUT_OF_RANGE; E_HOST_MEMORY, E_LIMIT, E_DEVICE_MEMORY. */
loch_status lochi_pool_take_block_at(lochi_pool *pool, const pool_want *want, pool_block **out);

/* Takes the small block of a class at an address, after making the slab around it if there is none. E_BUSY,
 * E_OUT_OF_RANGE; E_INVALID: no small block of this class starts there. E_HOST_MEMORY, E_LIMIT, E_DEVICE_MEMORY. */
loch_status lochi_pool_take_small_at(lochi_pool *pool, pool_lane *lane, uint32_t class, uintptr_t address,
                                     pool_entry *out);

#endif
