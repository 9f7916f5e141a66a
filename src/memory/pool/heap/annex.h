/* SPDX-License-Identifier: MIT */
/* Annexes: reservations beside a pool's range, each for one growable block. annex.c describes them. */
#ifndef LOCHI_POOL_ANNEX_H
#define LOCHI_POOL_ANNEX_H

#include "memory/pool/state/state.h"

/* Reserves addresses for a growable block, or takes a spare annex. Goes outside the pool's lock for the driver call.
 * The caller enters the block. E_ADDRESSES, E_HOST_MEMORY. */
loch_status lochi_pool_open_annex(struct lochi_pool *pool, size_t bytes, size_t alignment, pool_annex **out);
/* Enters the block of a new annex, which starts with it. */
void lochi_pool_enter_annex(struct lochi_pool *pool, pool_annex *annex, struct pool_block *block);
/* Keeps or gives back an annex that no block was entered in. */
void lochi_pool_return_annex(struct lochi_pool *pool, pool_annex *annex);
/* Ends the annex of a block without memory. The addresses are kept for the next block of that size, or go back. Goes
 * outside the pool's lock for the driver call. */
void lochi_pool_end_annex(struct lochi_pool *pool, uintptr_t start);
/* Gives the addresses of spare annexes back. Goes outside the pool's lock for the driver calls. */
void lochi_pool_drop_annexes(struct lochi_pool *pool);
/* Frees all annexes of a pool that ends. Nothing may be mapped. */
void lochi_pool_close_annexes(struct lochi_pool *pool);

#endif
