/* SPDX-License-Identifier: MIT */
/* Protects frozen blocks from writes by the host: their whole pages become read-only. */
#include "memory/pool/moving/protect.h"
#include "base/fail.h"
#include "base/logging.h"
#include "memory/movable.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"
#include "memory/pool/pool.h"

/* Returns the bytes of the whole pages of a block, and their start; 0 if there are no whole pages. */
static size_t protect_pages(const pool_block *block, void **start)
{
    const uintptr_t page = lochi_device_page_bytes();
    const uintptr_t first = (block->start + page - 1) & ~(page - 1), end = (block->start + block->bytes) & ~(page - 1);
    *start = (void *)first;
    return end > first ? end - first : 0;
}

/* Changes the access of a block, handle by handle. Skips sleeping handles, which have no memory. */
static loch_status protect_set(const lochi_pool *pool, const pool_block *block, loch_access access)
{
    void *start;
    const size_t bytes = protect_pages(block, &start);
    const uintptr_t end = (uintptr_t)start + bytes;
    for (uintptr_t at = (uintptr_t)start, next; at < end; at = next) {
        const pool_handle *handle = lochi_pool_find_cell(pool, at)->handle;
        next = handle->at + handle->bytes < end ? handle->at + handle->bytes : end;
        if (handle->rest == POOL_AWAKE)
            LOCH_TRY_RETURN(lochi_device_protect(pool->device, (void *)at, next - at, access));
    }
    return LOCH_OK;
}

static void protect_note(lochi_pool *pool, pool_block *block, bool is_protected)
{
    block->is_protected = is_protected;
    atomic_fetch_add_explicit(&pool->guarded, is_protected ? 1 : SIZE_MAX, memory_order_relaxed);
}

loch_status lochi_pool_thaw(lochi_pool *pool, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    if (block->is_protected) {
        LOCH_TRY_RETURN(protect_set(pool, block, LOCH_READ_WRITE));
        protect_note(pool, block, false);
    }
    block->frozen = 0;
    return LOCH_OK;
}

/* Tells whether the block at `*address` is protected. The address is read with the lock held, because the block may
 * move. */
static bool protect_is_set(lochi_pool *pool, void *const *address)
{
    if (!pool || !atomic_load_explicit(&pool->guarded, memory_order_relaxed)) return false;
    lochi_lock_take(&pool->lock);
    const pool_block *block =
        lochi_pool_find_around(pool, (uintptr_t)*address); /* a wrapper may put its own bytes in front */
    const bool is_protected = block && block->is_protected;
    lochi_lock_drop(&pool->lock);
    return is_protected;
}

bool lochi_pool_is_protected(loch_allocator *allocator, const void *address)
{
    void *const at = (void *)address;
    return protect_is_set(lochi_pool_of(allocator), &at);
}

loch_status lochi_pool_unprotect(loch_allocator *allocator, const void *address)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    if (!pool || !atomic_load_explicit(&pool->guarded, memory_order_relaxed)) return LOCH_OK;
    lochi_lock_take(&pool->lock);
    pool_block *block = lochi_pool_find_around(pool, (uintptr_t)address);
    const loch_status status = block && block->is_protected ? lochi_pool_thaw(pool, block) : LOCH_OK;
    lochi_lock_drop(&pool->lock);
    return status;
}

bool lochi_movable_is_protected(loch_allocator *allocator, const lochi_movable *movable)
{
    return protect_is_set(allocator->pool, &movable->address);
}

void lochi_pool_protect_again(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    const loch_error saved = lochi_error_save();
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        if (!block->is_protected || protect_set(pool, block, LOCH_READ_ONLY) == LOCH_OK) continue;
        protect_note(pool, block, false);
        LOCHI_LOG(WARNING, "frozen memory is not protected after the wake: %s", loch_error_get()->sentence);
    }
    lochi_error_restore(&saved);
}

loch_status lochi_pool_protect_new(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    if (!lochi_device_protects(pool->device)) return LOCH_OK;
    const loch_status status = lochi_pool_wait_for_all(pool);
    if (status != LOCH_OK)
        return loch_error_set(status, NULL, 0, "the streams of pool \"%s\" cannot be waited for",
                              loch_allocator_get_name(pool->allocator));
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        if (block->frozen != pool->freezes) continue;
        const loch_status protected = protect_set(pool, block, LOCH_READ_ONLY);
        if (protected == LOCH_E_UNSUPPORTED) break; /* the driver hands on to one that cannot protect */
        if (protected != LOCH_OK) return protected;
        protect_note(pool, block, true);
    }
    return LOCH_OK;
}

size_t lochi_pool_count_protected(const lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    size_t bytes = 0;
    void *start;
    for (const pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));)
        if (block->is_protected) bytes += protect_pages(block, &start);
    return bytes;
}
