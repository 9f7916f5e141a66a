/* SPDX-License-Identifier: MIT */
/* One sleep. */
#ifndef LOCHI_POOL_NAP_H
#define LOCHI_POOL_NAP_H

#include "memory/pool/state/state.h"
#include "memory/pool/sleeping/keep.h"

/* A range of addresses whose contents are kept from an offset on. */
typedef struct pool_range {
    uintptr_t start;
    size_t bytes, offset;
} pool_range;

/* A sleep that was not woken yet, in the list of its pool. */
typedef struct pool_nap {
    struct pool_nap *next;
    loch_tag tag;          /* 0 for the whole pool */
    unsigned char dropped; /* every byte of dropped contents after the wake */
    pool_keep keep;
    pool_range *ranges; /* sorted by address */
    size_t ranges_count, ranges_capacity;
    size_t bytes; /* sum of all ranges */
} pool_nap;

/* Lists the live memory in the chosen handles. E_HOST_MEMORY. */
loch_status lochi_nap_find_ranges(const lochi_pool *pool, pool_nap *nap);
/* Saves the contents of the listed ranges. */
loch_status lochi_nap_save(pool_nap *nap, pool_stage *stage);
/* Returns the offset at which the contents of an address are kept. */
size_t lochi_nap_find_offset(const pool_nap *nap, uintptr_t address);
/* Frees a nap and the contents it keeps. Takes locks of other allocators: call without the pool's lock. */
void lochi_nap_destroy(pool_nap *nap);
/* Frees a list of naps. */
void lochi_nap_destroy_all(pool_nap *nap);
/* Frees all naps of a pool that ends. */
void lochi_pool_close_naps(lochi_pool *pool);

#endif
