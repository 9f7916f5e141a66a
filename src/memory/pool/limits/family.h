/* SPDX-License-Identifier: MIT */
/* Limits that parents and children share. */
#ifndef LOCHI_POOL_FAMILY_H
#define LOCHI_POOL_FAMILY_H

#include "memory/pool/state/state.h"

/* Returns the bytes that the limits of a related pool and of all pools above it leave; SIZE_MAX if there is no
 * limit. */
size_t lochi_family_room(const lochi_pool *pool);
/* Counts bytes of a related pool in, in all pools above it too. Returns false if a limit would be exceeded. */
bool lochi_family_claim(lochi_pool *pool, size_t bytes);
/* Counts bytes of a related pool out, in all pools above it too. */
void lochi_family_unclaim(lochi_pool *pool, size_t bytes);
/* Returns by how many bytes a related pool, or a pool above it, exceeds a limit that was lowered. */
size_t lochi_family_excess(const lochi_pool *pool);
/* Sets the family's copy of a pool's limit, and the ceiling. E_LIMIT if the promised minima do not fit. */
loch_status lochi_family_set_limit(lochi_pool *pool, size_t limit_bytes, size_t ceiling);
/* Finds the nearest pool, `pool` included, whose ceiling is below `bytes`, and sets that ceiling. NULL for none. */
const lochi_pool *lochi_family_find_ceiling(const lochi_pool *pool, size_t bytes, size_t *ceiling);
/* Finds the topmost pool, `pool` included, whose limit does not leave `bytes` more for `pool`. Returns NULL if all
 * leave enough. */
lochi_pool *lochi_family_find_full(lochi_pool *pool, size_t bytes);
/* Returns how many bytes lack for `bytes` more in `pool`, up to the limit of `above`, in which its memory counts. */
size_t lochi_family_count_lack(const lochi_pool *pool, const lochi_pool *above, size_t bytes);
/* Finds the nearest pool, `pool` included, whose limit refuses `bytes` more for `pool`. Sets that limit and the bytes
 * counted in it. SIZE_MAX: it has none, and no minimum is promised in it, so the device is full. */
const lochi_pool *lochi_family_find_limit(lochi_pool *pool, size_t bytes, size_t *limit, size_t *held);
/* Tells whether the memory of `pool` counts in the limit of `above`. A pool counts in its own limit. */
bool lochi_family_is_below(const lochi_pool *pool, const lochi_pool *above);
/* Returns the bytes that a pool can give back for other pools of the family: what it holds above its minimum. */
size_t lochi_family_get_gain(const lochi_pool *pool);
/* Returns the free bytes that the pool's minimum covers. They are not given to other pools of the family. */
size_t lochi_family_get_keep(const lochi_pool *pool);
/* Returns the number of children, and sets the bytes that count for them in the pool's limit. */
size_t lochi_family_count(const lochi_pool *pool, size_t *bytes);
/* Tells whether the sum of a related pool equals the bytes that it and its children hold. Valid only while no child
 * is made or ended. */
bool lochi_family_check(const lochi_pool *pool);

/* Counts the minimum of a new child in, in all pools above it too. Returns false if it does not fit. Takes the
 * parent's lock. */
bool lochi_family_promise(lochi_pool *parent, size_t minimum);
/* Enters a new child in its parent's list. */
void lochi_family_link(lochi_pool *pool);
/* Takes a child out of its parent's list and sums. Its memory must have been given back to the device. */
void lochi_family_unlink(lochi_pool *pool);
/* Finds the first child made after number `*number`, and sets `*number` to its number. The caller releases it.
 * Returns NULL at the end. */
loch_allocator *lochi_family_next_child(const lochi_pool *pool, uint64_t *number);

#endif
