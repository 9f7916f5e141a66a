/* SPDX-License-Identifier: MIT */
/* Hands free blocks from one thread to another without the pool's lock.
 *
 * A program whose blocks are freed by other threads than those that allocate them drains the caches of some threads
 * and fills those of others. A thread whose cache is full leaves a batch of blocks in their lane's transfer cache; a
 * thread whose cache is empty takes a batch of the size that it needs. A lane gets its transfer cache when a cache of
 * it is full for the first time, if several threads use the pool.
 *
 * A transfer cache is an array of batches. The state of a batch is 0 (empty), POOL_BATCH_HELD (a thread fills or
 * empties it), or the size of its blocks. A thread changes a state from 0 or from a size to POOL_BATCH_HELD by compare
 * and exchange, which makes it the only owner of the batch, and ends with a plain store of the new state. It never
 * waits: if no batch is to be had, it takes the lock. Batches of one size are within POOL_TRANSFER_REACH places, and
 * each thread begins its search at another one of these.
 *
 * A thread touches a transfer cache only while it is busy and the gate is open, or while it holds the pool's lock. So
 * the holder of the lock that has stopped the gate owns all batches, and finds none of them held. The blocks of a batch
 * count as used by the pool and as cached by threads. tests/models/transfer.pml is a model of this. */
#include "memory/pool/front/transfer.h"
#include "base/heap.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/front/figures.h"
#include "memory/pool/front/fast.h"
#include <string.h>

/* Returns the batch at place `index` of those that may have blocks of `bytes`, beginning with the thread's own. */
static inline pool_batch *transfer_at(pool_transfer *transfer, size_t bytes, uint32_t index)
{
    const uint32_t first = (uint32_t)(bytes >> POOL_STEP_SHIFT) * 0x9e3779b1u >> 20;
    const uint32_t place = first + ((lochi_thread_slot_plus_one + index) & (POOL_TRANSFER_REACH - 1));
    return &transfer->batches[place & (POOL_TRANSFER_BATCHES - 1)];
}

/* Makes the calling thread the owner of a batch with a state. Returns false if the state is another one. */
static inline bool transfer_hold(pool_batch *batch, size_t state)
{
    return atomic_load_explicit(&batch->state, memory_order_relaxed) == state &&
           atomic_compare_exchange_strong_explicit(&batch->state, &state, POOL_BATCH_HELD, memory_order_acquire,
                                                   memory_order_relaxed);
}

static inline void transfer_release(pool_batch *batch, size_t state)
{
    atomic_store_explicit(&batch->state, state, memory_order_release);
}

/* Holds a batch of blocks of `bytes`; NULL for none. */
static pool_batch *transfer_hold_full(pool_transfer *transfer, size_t bytes)
{
    for (uint32_t i = 0; i < POOL_TRANSFER_REACH; i++) {
        pool_batch *batch = transfer_at(transfer, bytes, i);
        if (transfer_hold(batch, bytes)) return batch;
    }
    return NULL;
}

/* Holds an empty batch for blocks of `bytes`; NULL for none, or if the transfer caches of the pool have enough. */
static pool_batch *transfer_hold_empty(lochi_pool *pool, pool_transfer *transfer, size_t bytes)
{
    if (atomic_load_explicit(&pool->transfer_bytes, memory_order_relaxed) >=
        atomic_load_explicit(&pool->transfer_most, memory_order_relaxed))
        return NULL;
    for (uint32_t i = 0; i < POOL_TRANSFER_REACH; i++) {
        pool_batch *batch = transfer_at(transfer, bytes, i);
        if (transfer_hold(batch, 0)) return batch;
    }
    return NULL;
}

/* Ends filling a batch. */
static void transfer_leave(lochi_pool *pool, pool_batch *batch, uint32_t count, size_t bytes)
{
    batch->count = count;
    atomic_fetch_add_explicit(&pool->transfer_bytes, count * bytes, memory_order_relaxed);
    transfer_release(batch, bytes);
}

/* Ends emptying a batch. */
static void transfer_end(lochi_pool *pool, pool_batch *batch, size_t bytes)
{
    atomic_fetch_sub_explicit(&pool->transfer_bytes, batch->count * bytes, memory_order_relaxed);
    transfer_release(batch, 0);
}

/* --- without the lock --- */

static bool transfer_take_small(lochi_pool *pool, pool_cache *cache, size_t bytes)
{
    pool_stack *stack = &cache->stacks[lochi_pool_class(pool, bytes)];
    if (stack->count || !stack->capacity) return stack->count;
    pool_batch *batch = transfer_hold_full(cache->transfer, stack->bytes);
    if (!batch) return false;
    stack->count = batch->count; /* at most half of the capacity */
    memcpy(stack->entries, batch->small, batch->count * sizeof *stack->entries);
    transfer_end(pool, batch, stack->bytes);
    return true;
}

static bool transfer_take_large(lochi_pool *pool, pool_cache *cache, size_t requested)
{
    const size_t bytes = (requested + POOL_UNIT - 1) & ~(POOL_UNIT - 1);
    if (bytes > POOL_LARGE_MAX || cache->large_bytes > POOL_LARGE_BYTES) return false;
    pool_batch *batch = transfer_hold_full(cache->transfer, bytes);
    if (!batch) return false;
    pool_block **bin = &cache->large[lochi_pool_fast_bin(bytes)];
    for (uint32_t i = 0; i < batch->count; i++) {
        batch->large[i]->list_next = *bin;
        *bin = batch->large[i];
    }
    cache->large_bytes += batch->count * bytes;
    transfer_end(pool, batch, bytes);
    return true;
}

bool lochi_pool_take_left(lochi_pool *pool, const loch_request *request)
{
    if (request->alignment > pool->unit) return false;
    pool_cache *first = lochi_pool_enter(pool);
    if (!first) return false;
    pool_cache *cache = lochi_pool_fast_cache_of(pool, first, request->stream ? request->stream : pool->default_stream);
    bool is_taken = false;
    if (cache && cache->transfer)
        is_taken = request->bytes <= POOL_SMALL_MAX ? transfer_take_small(pool, cache, request->bytes)
                                                    : transfer_take_large(pool, cache, request->bytes);
    lochi_pool_exit(first);
    return is_taken;
}

/* Leaves the older half of a full stack. */
static bool transfer_leave_small(lochi_pool *pool, pool_cache *cache, uint32_t class)
{
    pool_stack *stack = &cache->stacks[class];
    if (!stack->capacity || stack->count < stack->capacity) return false;
    pool_batch *batch = transfer_hold_empty(pool, cache->transfer, stack->bytes);
    if (!batch) return false;
    const uint32_t half = stack->capacity / 2, count = half < POOL_BATCH ? half : POOL_BATCH;
    memcpy(batch->small, stack->entries, count * sizeof *stack->entries);
    stack->count -= count;
    memmove(stack->entries, stack->entries + count, stack->count * sizeof *stack->entries);
    transfer_leave(pool, batch, count, stack->bytes);
    return true;
}

/* Leaves cached blocks of one size. */
static bool transfer_leave_large(lochi_pool *pool, pool_cache *cache, size_t bytes)
{
    if (bytes > POOL_LARGE_MAX || cache->large_bytes + bytes <= POOL_LARGE_BYTES) return false;
    pool_batch *batch = transfer_hold_empty(pool, cache->transfer, bytes);
    if (!batch) return false;
    uint32_t count = 0;
    while (count < POOL_BATCH && (count + 1) * bytes <= POOL_BATCH_BYTES &&
           (batch->large[count] = lochi_pool_fast_pop(cache, bytes)))
        count++;
    if (count)
        transfer_leave(pool, batch, count, bytes);
    else
        transfer_release(batch, 0);
    return count;
}

bool lochi_pool_leave_batch(lochi_pool *pool, uintptr_t address)
{
    if (!atomic_load_explicit(&pool->has_transfer, memory_order_relaxed)) return false;
    pool_cache *first = lochi_pool_enter(pool);
    if (!first) return false;
    const uintptr_t page = lochi_pool_fast_page(pool, address);
    pool_slab *slab = lochi_pool_page_slab(page);
    const pool_block *block = page ? lochi_pool_page_block(page) : NULL;
    bool is_left = false;
    if (slab) {
        pool_cache *cache = lochi_pool_fast_cache(first, slab->lane);
        is_left = cache && cache->transfer && transfer_leave_small(pool, cache, slab->class);
    } else if (block && lochi_pool_state(block) == POOL_USED) {
        pool_cache *cache = lochi_pool_fast_cache(first, block->lane);
        is_left = cache && cache->transfer && transfer_leave_large(pool, cache, block->bytes);
    }
    if (is_left) lochi_pool_publish_own(pool, first);
    lochi_pool_exit(first);
    return is_left;
}

/* --- with the lock held --- */

/* Gives back the blocks of a batch that the calling thread holds, with blocks of `bytes`. */
static void transfer_give_back(lochi_pool *pool, pool_batch *batch, size_t bytes)
{
    for (uint32_t i = 0; i < batch->count; i++)
        if (bytes > POOL_SMALL_MAX) {
            lochi_pool_put_block(pool, batch->large[i]);
        } else {
            const uintptr_t page = lochi_pool_find_page(pool, (uintptr_t)batch->small[i].address);
            lochi_pool_slab_give(pool, lochi_pool_page_slab(page), batch->small[i].word);
        }
    transfer_end(pool, batch, bytes);
}

/* Gives back the first batch from place `from` on whose blocks have another size than `bytes`. Returns the place
 * behind it; POOL_TRANSFER_BATCHES for none. */
static uint32_t transfer_drop(lochi_pool *pool, pool_transfer *transfer, uint32_t from, size_t bytes)
{
    for (; from < POOL_TRANSFER_BATCHES; from++) {
        pool_batch *batch = &transfer->batches[from];
        const size_t state = atomic_load_explicit(&batch->state, memory_order_relaxed);
        if (state <= POOL_BATCH_HELD || state == bytes || !transfer_hold(batch, state)) continue;
        transfer_give_back(pool, batch, state);
        return from + 1;
    }
    return from;
}

void lochi_pool_open_transfer(lochi_pool *pool, pool_lane *lane, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    if (!pool->is_shared) return;
    if (lane->transfer) { /* sizes that the program no longer uses make room in turn */
        lane->transfer->next =
            transfer_drop(pool, lane->transfer, lane->transfer->next, bytes) & (POOL_TRANSFER_BATCHES - 1);
        return;
    }
    lane->transfer = lochi_zalloc_aligned(_Alignof(pool_transfer), sizeof *lane->transfer);
    if (lane->transfer) atomic_store_explicit(&pool->has_transfer, true, memory_order_relaxed);
}

void lochi_pool_flush_transfer(lochi_pool *pool, const pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    for (uint32_t at = 0; lane->transfer && at < POOL_TRANSFER_BATCHES;)
        at = transfer_drop(pool, lane->transfer, at, 0);
}

bool lochi_pool_flush_transfers(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    if (!atomic_load_explicit(&pool->transfer_bytes, memory_order_relaxed)) return false;
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next)
        lochi_pool_flush_transfer(pool, lane);
    return true;
}
