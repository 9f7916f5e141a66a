/* SPDX-License-Identifier: MIT */
/* Batches of free blocks on their way from thread to thread. */
#ifndef LOCHI_POOL_TRANSFER_H
#define LOCHI_POOL_TRANSFER_H

#include "memory/pool/state/state.h"

#define POOL_BATCH 32                      /* blocks in a batch, at most */
#define POOL_BATCH_BYTES ((size_t)2 << 20) /* bytes in a batch of large blocks, at most */
#define POOL_TRANSFER_BATCHES 64           /* batches of a lane */
#define POOL_TRANSFER_REACH 16             /* batches that may have blocks of one size */
#define POOL_BATCH_HELD ((size_t)1)

/* Free blocks of one lane and one size. */
typedef struct pool_batch {
    _Alignas(128) atomic_size_t state; /* 0: empty; POOL_BATCH_HELD: a thread owns it; otherwise the blocks' size */
    uint32_t count;
    union {
        pool_entry small[POOL_BATCH];
        pool_block *large[POOL_BATCH];
    };
} pool_batch;

struct pool_transfer {
    pool_batch batches[POOL_TRANSFER_BATCHES];
    uint32_t next; /* batch to look at when one has to go; guarded by the lock */
};

/* Fills the calling thread's cache for a plain request with a batch that another thread left. Returns false if there
 * is none, or if the thread has to take the lock. Call without the lock. */
bool lochi_pool_take_left(lochi_pool *pool, const loch_request *request);
/* Calls lochi_pool_take_left if threads have left batches. */
static inline bool lochi_pool_take_batch(lochi_pool *pool, const loch_request *request)
{
    return LOCHI_UNLIKELY(atomic_load_explicit(&pool->transfer_bytes, memory_order_relaxed)) &&
           lochi_pool_take_left(pool, request);
}
/* Leaves a batch of the calling thread's cache to other threads, so that the block at `address` can be cached.
 * Returns false if the thread has to take the lock. Call without the lock. */
bool lochi_pool_leave_batch(lochi_pool *pool, uintptr_t address);

/* Makes the transfer cache of a lane, for later batches; or gives one batch of blocks of another size than `bytes`
 * back, if there is one. Called when a cache of the lane is full. Without host memory nothing happens. */
void lochi_pool_open_transfer(lochi_pool *pool, pool_lane *lane, size_t bytes);
/* Gives back all batches of a lane. The gate must be stopped. */
void lochi_pool_flush_transfer(lochi_pool *pool, const pool_lane *lane);
/* Gives back the batches of all lanes. Returns whether there was one. The gate must be stopped. */
bool lochi_pool_flush_transfers(lochi_pool *pool);

#endif
