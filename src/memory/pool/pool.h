/* SPDX-License-Identifier: MIT */
/* The door of the pool: what other rooms may call. It brings the ways in and out without a lock, which the dispatch has in
 * line (quick.h), and the gate to them (gate.h). Files of other rooms include no other header of this one. */
#ifndef LOCHI_POOL_H
#define LOCHI_POOL_H

#include "memory/pool/gate.h"
#include "memory/pool/quick.h"

/* Allocates under the pool's lock what the calling thread's cache did not have. The request is as for lochi_pool_alloc_quickly.
 * Returns false when the pool did not try: its gate is closed, or the request needs the checks of the dispatch. Else `*status` is
 * the answer, and the error record belongs to it. */
bool lochi_pool_alloc_plainly(lochi_pool *pool, const loch_request *request, loch_status *status, void **out);

/* Goes on with a complete request whose first attempt failed with `status`: asks other pools for what they do not use, and
 * tries once more if that helped. Counts the failure. Without the lock. */
loch_status lochi_pool_alloc_again(lochi_pool *pool, const loch_request *request, loch_status status, void **out);

/* Frees under the pool's lock what the calling thread's cache did not take. Returns false when nothing has happened: the
 * gate is closed, or the address is wrong. */
bool lochi_pool_free_plainly(lochi_pool *pool, void *address);

/* A block of a session: it is not taken back the short way. */
void lochi_pool_keep_off(lochi_pool *pool, const void *address);

/* Between the two nothing moves. A block that settles never does again. */
void lochi_pool_hold_still(lochi_pool *pool);
void lochi_pool_make_stay(lochi_pool *pool, const void *address);
void lochi_pool_let_move(lochi_pool *pool);

/* Gives back all that the calling thread keeps, and what it kept that in: it takes the lock until it has a cache again. */
void lochi_pool_drop_cache(lochi_pool *pool);

/* E_BUSY when memory of a block sleeps. Through wrappers; others than pools do not sleep. */
loch_status lochi_pool_check_awake(loch_allocator *allocator, const void *address, size_t bytes);

/* Whether the host must not write to a block: it is frozen and protected. Through wrappers. */
bool lochi_pool_is_protected(loch_allocator *allocator, const void *address);

/* For a wrapper that writes to a block before it frees it: it is not frozen any more. */
loch_status lochi_pool_unprotect(loch_allocator *allocator, const void *address);

/* Walks the live blocks of all children with a quota, and theirs, also of those that only their blocks keep. */
loch_status lochi_pool_walk_family(loch_allocator *pool, loch_block_visitor *visitor, void *user);

/* Freezes in all children of a pool and theirs, also in those that only their blocks keep; adds to `bytes`. The first failure ends it. The
 * options protect nothing: the pools of the process wait meanwhile when they are short of memory. */
loch_status lochi_pool_freeze_below(loch_allocator *pool, const loch_freeze_options *options, size_t *bytes);

/* Counts the sleeps that have dropped contents of blocks of a tag, at least: never falls, and rises for no other reason but a sleep that
 * drops. Through wrappers; 0 for others than pools. Any thread. */
uint64_t lochi_pool_count_drops(loch_allocator *allocator, loch_tag tag);
/* Counts the sleeps of all pools of the process that have dropped contents. */
uint64_t lochi_pool_count_all_drops(void);

/* The allocator whose block a pool cuts up: the parent's for LOCH_CHILD_RANGE, else NULL. */
loch_allocator *lochi_pool_get_range_owner(const lochi_pool *pool);

/* Has all memory of a pool opened to further devices of its driver, which it retains. Before the first allocation. */
loch_status lochi_pool_open_to(loch_allocator *pool, loch_device *const *peers, size_t count);

#endif
