/* SPDX-License-Identifier: MIT */
/* Annexes: reservations beside a pool's range, each for one growable block. annex.c describes them. */
#ifndef LOCHI_POOL_ANNEX_H
#define LOCHI_POOL_ANNEX_H

#include "base/tree.h"
#include "device/ranges.h"

/* The addresses of one growable block. The record stays until the pool ends, because copies read it without a lock. */
typedef struct pool_annex {
    lochi_tree_node node; /* key: the first address */
    size_t bytes;
    lochi_tenant tenant; /* of the reservation: checks copies */
    struct lochi_pool *pool;
    _Atomic(struct pool_block *) block; /* NULL for none; release / acquire */
    struct pool_chunk **chunks;         /* of cells, made when memory is mapped; NULL before the first one */
    struct pool_annex *next;            /* list of spare annexes, or of unused records */
} pool_annex;

/* The annexes of a pool. Guarded by the pool's lock; they come and go with both locks held. */
typedef struct pool_annexes {
    lochi_tree tree;                /* pool_annex with a block, by address */
    pool_annex *spare;              /* reserved, and without a block */
    pool_annex *unused;             /* records without addresses */
    struct pool_block *ended;       /* list: freed blocks whose streams may still use them */
    size_t spare_count, held_bytes; /* held_bytes: reserved in all annexes */
    size_t ranged_bytes;            /* addresses of growable blocks in the pool's own range */
    lochi_tenant tenant;            /* the functions of every annex's tenant */
} pool_annexes;

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
