/* SPDX-License-Identifier: MIT */
/* One sleep. */
#ifndef LOCHI_POOL_NAP_H
#define LOCHI_POOL_NAP_H

#include "memory/pool/state.h"
#include "memory/pool/keep.h"

/* Contents at addresses, kept from an offset on. */
typedef struct pool_range {
    uintptr_t start;
    size_t bytes, offset;
} pool_range;

/* A sleep that was not woken, in the list of its pool. */
typedef struct pool_nap {
    struct pool_nap *next;
    loch_tag tag; /* 0: everything */
    pool_keep keep;
    pool_range *ranges; /* by address */
    size_t ranges_count, ranges_capacity;
    size_t bytes; /* of all ranges */
} pool_nap;

/* Notes what lies in the handles that were chosen. E_HOST_MEMORY. */
loch_status lochi_nap_find_ranges(const lochi_pool *pool, pool_nap *nap);
/* Saves what was noted. */
loch_status lochi_nap_save(pool_nap *nap, pool_stage *stage);
/* Returns the offset at which the contents of an address are kept. */
size_t lochi_nap_find_offset(const pool_nap *nap, uintptr_t address);
/* Forgets what was kept. Without the lock: other allocators' are taken. */
void lochi_nap_destroy(pool_nap *nap);
/* Forgets a list of naps. */
void lochi_nap_destroy_all(pool_nap *nap);
/* Forgets all naps of a pool that ends. */
void lochi_pool_close_naps(lochi_pool *pool);

#endif
