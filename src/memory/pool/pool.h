/* SPDX-License-Identifier: MIT */
/* The door of the pool: the functions that other rooms may call. It includes the fast path, which the dispatch
 * inlines (fast.h), and its gate (gate.h). Files of other rooms include no other header of this room. */
#ifndef LOCHI_POOL_H
#define LOCHI_POOL_H

#include "base/shared.h"
#include "memory/pool/front/front.h"
#include "memory/pool/serve/serve.h"
#include "memory/pool/report/report.h"

/* Allocates with the pool's lock, after the calling thread's cache had no block. The request is as for
 * lochi_pool_alloc_fast. Returns false if the pool did not try: its gate is closed, or the request needs the
 * checks of the dispatch. Otherwise `*status` is the result, and the error record belongs to it. */
bool lochi_pool_alloc_locked(lochi_pool *pool, const loch_request *request, loch_status *status, void **out);

/* Continues a complete request whose first attempt failed with `status`: asks other pools for unused memory, and
 * tries once more if they gave some. Counts the failure. Call without the lock. */
loch_status lochi_pool_alloc_again(lochi_pool *pool, const loch_request *request, loch_status status, void **out);

/* Frees with the pool's lock, after the calling thread's cache did not take the block. Returns false if nothing has
 * happened: the gate is closed, or the address is wrong. */
bool lochi_pool_free_locked(lochi_pool *pool, void *address);

/* Keeps a block of a session from being freed on the fast path. */
void lochi_pool_keep_off(lochi_pool *pool, const void *address);

/* lochi_pool_hold_still takes the pool's lock, so that no block moves until lochi_pool_let_move drops it.
 * lochi_pool_make_stay, called between the two, keeps one block in place for good. */
void lochi_pool_hold_still(lochi_pool *pool);
void lochi_pool_make_stay(lochi_pool *pool, const void *address);
void lochi_pool_let_move(lochi_pool *pool);

/* Gives back everything that the calling thread caches, and the cache itself. The thread takes the lock until it has
 * a cache again. */
void lochi_pool_drop_cache(lochi_pool *pool);

/* Gives the free memory of a pool of graphs back after its last reference was released while blocks are live, and
 * later the memory of each block that is freed. Does nothing for other pools. Takes the locks. */
void lochi_pool_retire(lochi_pool *pool);

/* Returns the parent in whose limits the memory of a pool counts; NULL for none. It lives as long as the pool. */
lochi_pool *lochi_pool_get_parent(const lochi_pool *pool);
/* Tells whether memory that `parent` frees can help when a limit refuses `bytes` to `pool`. */
bool lochi_pool_is_short_of(lochi_pool *pool, const lochi_pool *parent, size_t bytes);
/* Refuses a request that the pool can never serve, as an attempt would. E_LIMIT, E_DEVICE_MEMORY. */
loch_status lochi_pool_check_request(lochi_pool *pool, const loch_request *request);

/* Asks the pools of a device and kind to give back unused memory for `bytes`, of which the device has `left` (SIZE_MAX:
 * not known). Asks none if all of that memory together were not enough. Returns the bytes given back. Call without
 * locks. */
size_t lochi_pool_ask_device(const loch_device *device, loch_memory_kind kind, size_t bytes, size_t left);

/* Notes what the calling thread has allocated and freed so far. */
void lochi_pool_mark_frees(void);
/* Tells whether the calling thread has freed a block since its last lochi_pool_mark_frees: in one pool it has freed
 * more than it has allocated there. */
bool lochi_pool_has_frees(void);

/* Tells whether a growable block starts at an address. */
bool lochi_pool_is_growable(lochi_pool *pool, const void *address);
/* Reads a growable block. Returns false if there is none at this address. May be called with the pool's lock held. */
bool lochi_pool_get_growth(lochi_pool *pool, const void *address, lochi_growth *out);

/* Returns E_BUSY if memory of a block is asleep. Looks through wrappers. Only pools sleep. */
loch_status lochi_pool_check_awake(loch_allocator *allocator, const void *address, size_t bytes);

/* Tells whether the host must not write to a block, because it is frozen and protected. Looks through wrappers. */
bool lochi_pool_is_protected(loch_allocator *allocator, const void *address);

/* Unfreezes a block, for a wrapper that writes to it before it frees it. */
loch_status lochi_pool_unprotect(loch_allocator *allocator, const void *address);

/* Walks the live blocks of all children with a quota, and of their children, including children that only their
 * blocks keep alive. */
LOCHI_SHARED loch_status lochi_pool_walk_family(loch_allocator *pool, loch_block_visitor *visitor, void *user);

/* Freezes all children of a pool, and their children, including those that only their blocks keep alive. Adds to
 * `bytes`. Stops at the first failure. The options must not protect: the list of pools is locked meanwhile, and pools
 * that are short of memory wait for it. */
LOCHI_SHARED loch_status lochi_pool_freeze_below(loch_allocator *pool, const loch_freeze_options *options,
                                                 size_t *bytes);

/* Returns an upper bound of the number of sleeps that have dropped contents of blocks of a tag. It never falls, and
 * rises only when a sleep drops contents. Looks through wrappers; 0 for other allocators. Any thread. */
uint64_t lochi_pool_count_drops(loch_allocator *allocator, loch_tag tag);
/* Returns the number of sleeps of all pools of the process that have dropped contents. */
uint64_t lochi_pool_count_all_drops(void);

/* Returns the allocator whose blocks a pool uses as its memory: the parent for LOCH_CHILD_RANGE, or the source; NULL
 * for none. */
loch_allocator *lochi_pool_get_range_owner(const lochi_pool *pool);

/* Returns the alignment of buffers that ask for none, for allocators that are pools: the device's, if the pool aligns
 * small blocks less; otherwise 0. Looks through wrappers. */
size_t lochi_pool_align_buffers(const loch_allocator *allocator);

/* Opens all memory of a pool to further devices of its driver, and retains them. Call before the first allocation. */
LOCHI_SHARED loch_status lochi_pool_open_to(loch_allocator *pool, loch_device *const *peers, size_t count);

#endif
