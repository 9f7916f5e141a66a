/* SPDX-License-Identifier: MIT */
/* The structs of annexes: reservations beside a pool's range (heap/annex.c). */
#ifndef LOCHI_POOL_ANNEXES_H
#define LOCHI_POOL_ANNEXES_H

#include "base/regions.h"
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
    lochi_span span;                    /* in the index of all allocators */
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

#endif
