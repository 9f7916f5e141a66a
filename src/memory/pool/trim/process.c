/* SPDX-License-Identifier: MIT */
/* The list of all pools of the process. Through it pools of one device give memory back for each other, children
 * give memory back for their parents, and forks and ending threads reach all pools. The list lock keeps pools from
 * ending, including those that only their blocks keep alive. */
#include "memory/pool/trim/process.h"
#include "base/fence.h"
#include "base/fork.h"
#include "memory/pool/front/front.h"
#include "memory/pool/limits/limits.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/trim/idle.h"
#include "memory/pool/state/state.h"
#include "memory/pool/pool.h"
#include "memory/pool/supply/supply.h"
#include "memory/pool/trim/trim.h"

static lochi_lock process_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_POOLS);
static lochi_pool *process_pools; /* guarded by process_lock */

/* --- threads that end, and forks --- */

/* Drops the locks of a pool. Adds its segments for its source to `*returned`, until the list of pools is unlocked. */
static void process_drop_locks(lochi_pool *pool, pool_handle **returned)
{
    pool_handle *more = lochi_pool_drop_both(pool), **end = &more;
    while (*end)
        end = &(*end)->next;
    *end = *returned;
    *returned = more;
}

/* Gives back what an ending thread cached. Leaves memory of a device that did not survive a fork alone. */
static void process_thread_ends(uint32_t slot)
{
    pool_handle *returned = NULL;
    lochi_lock_take(&process_lock);
    for (lochi_pool *pool = process_pools; pool; pool = pool->next_pool) {
        if (pool->is_forked || !atomic_load_explicit(&pool->caches[slot + 1], memory_order_relaxed)) continue;
        lochi_lock_take(&pool->lock);
        for (pool_cache *cache = atomic_load_explicit(&pool->caches[slot + 1], memory_order_relaxed); cache;
             cache = cache->next) {
            lochi_pool_flush(pool, cache);
            lochi_pool_publish(pool, cache);
        }
        if (atomic_load_explicit(&pool->transfer_bytes, memory_order_relaxed)) { /* it may be the last but one */
            lochi_pool_stop(pool);
            lochi_pool_flush_transfers(pool);
            lochi_pool_go(pool);
        }
        lochi_pool_look_at_idle(pool);
        process_drop_locks(pool, &returned);
    }
    lochi_lock_drop(&process_lock);
    lochi_pool_give_returned(returned);
}

void lochi_pool_drop_cache(lochi_pool *pool)
{
    const uint32_t slot = lochi_thread_slot();
    if (slot == LOCHI_SLOT_SHARED) return;
    lochi_lock_take(&pool->lock);
    pool_cache *caches = lochi_pool_take_caches(pool, slot);
    lochi_pool_look_at_idle(pool);
    lochi_pool_drop_locks(pool);
    lochi_pool_end_caches(pool, caches);
}

/* Keeps all threads out of the caches of all pools, before a fork. */
static void process_stop(void)
{
    for (lochi_pool *pool = process_pools; pool; pool = pool->next_pool)
        atomic_fetch_add_explicit(&pool->gate, 1, memory_order_seq_cst);
    lochi_fence_heavy();
    for (lochi_pool *pool = process_pools; pool; pool = pool->next_pool)
        lochi_pool_await(pool);
}

static void process_go(void)
{
    for (lochi_pool *pool = process_pools; pool; pool = pool->next_pool)
        lochi_pool_go(pool);
}

/* Opens the gates in the child of a fork. The gate of a pool whose device did not survive stays closed for good. */
static void process_forked(void)
{
    for (lochi_pool *pool = process_pools; pool; pool = pool->next_pool) {
        const bool was_forked = pool->is_forked;
        lochi_pool_leave_caches(pool);
        pool->source.fetches = 0; /* of threads that are not here */
        lochi_lock_init_condition(&pool->source.has_fetched);
        pool->is_forked = lochi_device_is_forked(pool->device);
        if (was_forked || !pool->is_forked) lochi_pool_go(pool);
    }
}

static void process_settle(void)
{
    lochi_thread_visit_lost(process_thread_ends);
}

static lochi_fork_part process_part = {
    .prepare = process_stop, .parent = process_go, .child = process_forked, .settle = process_settle};

/* --- the list --- */

void lochi_pool_join(lochi_pool *pool)
{
    lochi_fork_add(&process_part);
    lochi_thread_at_end(process_thread_ends);
    lochi_lock_take(&process_lock);
    pool->next_pool = process_pools;
    pool->pool_link = &process_pools;
    if (process_pools) process_pools->pool_link = &pool->next_pool;
    process_pools = pool;
    lochi_lock_drop(&process_lock);
}

void lochi_pool_leave(lochi_pool *pool)
{
    lochi_lock_take(&process_lock);
    *pool->pool_link = pool->next_pool;
    if (pool->next_pool) pool->next_pool->pool_link = pool->pool_link;
    lochi_lock_drop(&process_lock);
}

loch_status lochi_pool_visit_all(pool_visitor *visit, void *user)
{
    loch_status status = LOCH_OK;
    lochi_lock_take(&process_lock);
    for (lochi_pool *pool = process_pools; pool && status == LOCH_OK; pool = pool->next_pool)
        status = visit(pool, user);
    lochi_lock_drop(&process_lock);
    return status;
}

/* --- what a thread frees --- */

void lochi_pool_mark_frees(void)
{
    lochi_lock_take(&process_lock);
    for (lochi_pool *pool = process_pools; pool; pool = pool->next_pool)
        lochi_pool_mark_own_blocks(pool);
    lochi_lock_drop(&process_lock);
}

bool lochi_pool_has_frees(void)
{
    bool has_any = false;
    lochi_lock_take(&process_lock);
    for (lochi_pool *pool = process_pools; pool && !has_any; pool = pool->next_pool)
        has_any = lochi_pool_has_own_frees(pool);
    lochi_lock_drop(&process_lock);
    return has_any;
}

/* --- asking others for memory --- */

/* Whose memory is short: the pools of this device and kind can help, without `asker`. Or whose limit is reached: the
 * pools can help whose memory counts in it. */
typedef struct process_need {
    const lochi_pool *asker; /* NULL: no pool */
    const loch_device *device;
    loch_memory_kind kind;
    const lochi_pool *full; /* NULL: the device is short */
    const lochi_pool *user; /* that gets the memory up to a limit; NULL: none */
} process_need;

/* Tells whether a pool can give memory back. One whose driver call the thread is inside of cannot. One for which the
 * thread fetches a segment gives back by itself what it has, and gets it again if the request fails. */
static bool process_can_help(const process_need *need, const lochi_pool *other)
{
    if (other == need->asker || other->range || lochi_lock_is_mine(&other->supply)) return false;
    if (lochi_pool_is_fetching(other)) return false;
    if (need->full) return lochi_family_is_below(other, need->full);
    return other->device == need->device && other->kind == need->kind;
}

/* Tells whether the minimum of a pool stays, because a limit is reached. It is there for the pools below as well. */
static bool process_keeps_minimum(const process_need *need, const lochi_pool *other)
{
    return need->full && !(need->user && lochi_family_is_below(need->user, other));
}

/* Returns the part of `bytes` that a pool can give back. */
static size_t process_cap_gain(const process_need *need, const lochi_pool *other, size_t bytes)
{
    const size_t gain = process_keeps_minimum(need, other) ? lochi_family_get_gain(other) : SIZE_MAX;
    return bytes < gain ? bytes : gain;
}

/* Returns the bytes of other pools that may be free: at most so many can be given back. */
static size_t process_count_spare(const process_need *need)
{
    size_t spare = 0;
    lochi_lock_assert_held(&process_lock);
    for (lochi_pool *other = process_pools; other; other = other->next_pool) {
        if (!process_can_help(need, other)) continue;
        lochi_lock_take(&other->lock);
        spare += process_cap_gain(need, other, lochi_pool_count_spare(other));
        lochi_lock_drop(&other->lock);
    }
    return spare;
}

/* Returns the bytes of other pools that can be given back: those in whole handles, after what threads cache was
 * merged, and after a wait for their streams. */
static size_t process_count_idle(const process_need *need, pool_handle **returned)
{
    size_t idle = 0;
    lochi_lock_assert_held(&process_lock);
    for (lochi_pool *other = process_pools; other; other = other->next_pool) {
        if (!process_can_help(need, other)) continue;
        lochi_pool_take_locks(other);
        idle += process_cap_gain(need, other, lochi_pool_count_trim(other));
        process_drop_locks(other, returned);
    }
    return idle;
}

/* Lets other pools give unused memory back for `bytes`, of which `left` are there already; SIZE_MAX: not known. Takes
 * nothing if all of it together were not enough. */
static size_t process_ask(const process_need *need, size_t bytes, size_t left)
{
    size_t gone = 0;
    pool_handle *returned = NULL;
    if (lochi_lock_is_mine(&process_lock)) return 0; /* a function that a driver call has called allocates */
    const size_t missing = left == SIZE_MAX ? 1 : bytes > left ? bytes - left : 0;
    lochi_lock_take(&process_lock);
    const bool is_enough = process_count_spare(need) >= missing && process_count_idle(need, &returned) >= missing;
    for (lochi_pool *other = is_enough ? process_pools : NULL; other && gone < bytes; other = other->next_pool) {
        if (!process_can_help(need, other)) continue;
        lochi_pool_take_locks(other);
        gone += lochi_pool_trim(other, 0);
        process_drop_locks(other, &returned);
    }
    lochi_lock_drop(&process_lock);
    lochi_pool_give_returned(returned);
    return gone;
}

size_t lochi_pool_ask_device(const loch_device *device, loch_memory_kind kind, size_t bytes, size_t left)
{
    const process_need need = {.device = device, .kind = kind};
    return process_ask(&need, bytes, left);
}

size_t lochi_pool_ask_siblings(lochi_pool *pool, size_t bytes, loch_status why)
{
    const process_need need = {.asker = pool, .device = pool->device, .kind = pool->kind};
    lochi_pool_take_locks(pool);
    lochi_pool_look_at_room(pool, bytes);
    const size_t limit = lochi_pool_find_limit_room(pool),
                 room = pool->policy.can_ask_room ? pool->room.bytes : SIZE_MAX;
    /* New memory comes in the place of whole handles; if it can be mapped, between two free pieces at most. */
    const size_t pieces = pool->policy.is_virtual ? 2 * lochi_pool_find_largest(pool) : 0;
    const size_t own = lochi_pool_count_idle(pool, true) + pieces;
    lochi_pool_drop_locks(pool);
    if (limit != SIZE_MAX && limit + own < bytes) return 0; /* the limits refuse it, whatever others give back */
    if (why != LOCH_E_DEVICE_MEMORY && room != SIZE_MAX && room >= bytes) return 0; /* the device is not short */
    return process_ask(&need, bytes, room == SIZE_MAX ? SIZE_MAX : room + own);
}

/* Tells whether the other pools of a family can give back what a pool lacks for `bytes`, at every limit on its path. */
static bool process_is_family_enough(process_need need, lochi_pool *pool, size_t bytes, pool_handle **returned)
{
    size_t own = 0;
    if (need.asker) {
        lochi_lock_take(&pool->lock);
        own = lochi_pool_count_spare(pool);
        lochi_lock_drop(&pool->lock);
    }
    for (need.full = pool; need.full; need.full = lochi_pool_get_parent(need.full)) {
        const size_t lack = lochi_family_count_lack(pool, need.full, bytes);
        if (lack <= own) continue;
        if (process_count_spare(&need) < lack - own || process_count_idle(&need, returned) < lack - own) return false;
    }
    return true;
}

size_t lochi_pool_ask_family(lochi_pool *pool, size_t bytes, bool is_asked)
{
    size_t gone = 0;
    pool_handle *returned = NULL;
    const process_need need = {
        .asker = is_asked ? NULL : pool, .full = lochi_family_find_full(pool, bytes), .user = bytes ? pool : NULL};
    if (!need.full || lochi_lock_is_mine(&process_lock)) return 0; /* as in process_ask */
    lochi_lock_take(&process_lock);
    const bool is_enough = !bytes || process_is_family_enough(need, pool, bytes, &returned);
    for (lochi_pool *other = is_enough ? process_pools : NULL; other; other = other->next_pool) {
        if (!process_can_help(&need, other)) continue;
        lochi_pool_take_locks(other);
        gone += lochi_pool_trim(other, process_keeps_minimum(&need, other) ? lochi_family_get_keep(other) : 0);
        process_drop_locks(other, &returned);
    }
    lochi_lock_drop(&process_lock);
    lochi_pool_give_returned(returned);
    return gone;
}
