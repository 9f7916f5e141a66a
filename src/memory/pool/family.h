/* SPDX-License-Identifier: MIT */
/* What parents and children hold together. */
#ifndef LOCHI_POOL_FAMILY_H
#define LOCHI_POOL_FAMILY_H

#include "memory/pool/state.h"

/* Returns the bytes that the limits of a related pool and of those above it leave; SIZE_MAX: there are none. */
size_t lochi_family_room(const lochi_pool *pool);
/* Counts bytes of a related pool in, all the way up. Returns false when they do not fit. */
bool lochi_family_claim(lochi_pool *pool, size_t bytes);
/* Counts bytes of a related pool out, all the way up. */
void lochi_family_unclaim(lochi_pool *pool, size_t bytes);
/* Returns by how much a related pool, or one above it, exceeds a limit that was lowered. */
size_t lochi_family_excess(const lochi_pool *pool);
/* Sets the copy of a limit. E_LIMIT when minima would not fit. */
loch_status lochi_family_set_limit(lochi_pool *pool, size_t limit_bytes);
/* Finds the topmost pool that has not `bytes` more for `pool`, which may be itself; NULL: there is none. */
lochi_pool *lochi_family_find_full(lochi_pool *pool, size_t bytes);
/* Finds the pool whose limit keeps `pool` from `bytes` more: itself, or the topmost one above it that is full. Reads that limit,
 * and what counts in it. */
const lochi_pool *lochi_family_find_limit(lochi_pool *pool, size_t bytes, size_t *limit, size_t *held);
/* Tells whether what `pool` holds counts in `above`, or is its own. */
bool lochi_family_is_below(const lochi_pool *pool, const lochi_pool *above);
/* Returns the free bytes that cannot be lent to another pool of the family: what the minimum covers. */
size_t lochi_family_get_keep(const lochi_pool *pool);
/* Counts a pool's children, and the bytes that count in its limit for them. */
size_t lochi_family_count(const lochi_pool *pool, size_t *bytes);
/* Tells whether a related pool's sum is what it and its children hold, while nobody makes or ends one. */
bool lochi_family_check(const lochi_pool *pool);

/* Counts the minimum of a new child in, all the way up. Returns false when it does not fit. Takes the parent's lock. */
bool lochi_family_promise(lochi_pool *parent, size_t minimum);
/* Enters a new child in its parent's list. */
void lochi_family_link(lochi_pool *pool);
/* Takes a child out of its parent's list and sums. Its memory has gone back to the device. */
void lochi_family_unlink(lochi_pool *pool);
/* Finds the first child that was made after number `*number`, which becomes its own. The caller releases it. NULL: none. */
loch_allocator *lochi_family_next_child(const lochi_pool *pool, uint64_t *number);

#endif
