/* SPDX-License-Identifier: MIT */
/* Sums and peaks of a pool over all threads. */
#ifndef LOCHI_POOL_FIGURES_H
#define LOCHI_POOL_FIGURES_H

#include "memory/pool/state/state.h"

/* Raises the peaks of the pool, and lets the thread allocate more before its next call. Called by the thread of the
 * cache, after an allocation of `requested` bytes that was the largest so far or left no room in a figure. */
void lochi_pool_raise(lochi_pool *pool, pool_cache *cache, size_t requested);

/* Publishes what the calling thread has counted, for other threads to use, unless one of them is at the sums now. Does
 * not look for a peak. */
void lochi_pool_publish_own(lochi_pool *pool, pool_cache *cache);
/* Calls lochi_pool_raise for the calling thread if the gate is open. If it is closed, the holder of the lock adds up
 * the figures, or the thread's next allocation does. Returns LOCH_OK. Call without the lock. */
loch_status lochi_pool_raise_late(lochi_pool *pool, size_t requested);

/* Adds the figures of a cache to the sums of the pool. The lock is held. */
void lochi_pool_publish(lochi_pool *pool, pool_cache *cache);
/* Adds to the sums of the pool. The lock is held. */
void lochi_pool_add(lochi_pool *pool, const int64_t more[POOL_METRICS]);
/* Makes a cache the first one of a slot. An earlier one is published. */
void lochi_pool_link_cache(lochi_pool *pool, uint32_t slot, pool_cache *cache);
/* Takes the caches of a slot, which are published, out of the pool. */
void lochi_pool_unlink_cache(lochi_pool *pool, uint32_t slot);
/* Notes that several threads use the pool. The gate must be stopped. */
void lochi_pool_share(lochi_pool *pool);

/* Returns the bytes that the pool holds and that are not in live blocks, as far as other threads have counted them. */
size_t lochi_pool_count_spare(lochi_pool *pool);

/* Marks how many blocks the calling thread has in its caches' accounts now. Call without the lock. */
void lochi_pool_mark_own_blocks(lochi_pool *pool);
/* Tells whether the calling thread has freed more blocks than it has allocated since lochi_pool_mark_own_blocks. */
bool lochi_pool_has_own_frees(lochi_pool *pool);

/* Publishes all caches. The gate must be stopped. */
void lochi_pool_publish_all(lochi_pool *pool);
/* Begins a segment: peaks start at the present values. The gate must be stopped. */
void lochi_pool_restart_peaks(lochi_pool *pool);

#endif
