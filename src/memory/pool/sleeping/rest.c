/* SPDX-License-Identifier: MIT */
/* Sleeping handles and the blocks on them, for sleep.c and wake.c. */
#include "memory/pool/sleeping/rest.h"
#include "base/fail.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/state/state.h"
#include "memory/pool/lanes/lanes.h"

#define REST_RECORDS 31 /* records in one batch, at least */

size_t lochi_rest_count_live(const pool_block *block)
{
    switch (lochi_pool_state(block)) {
    case POOL_USED:
    case POOL_SPECIAL:
    case POOL_SLAB:
    case POOL_CACHED:
    case POOL_WAITING: return block->bytes;
    case POOL_GROWABLE: return block->committed;
    default: return 0;
    }
}

size_t lochi_rest_count_kept(const pool_block *block)
{
    const pool_state state = lochi_pool_state(block);
    const bool is_free = state == POOL_FREE || state == POOL_DORMANT;
    return is_free && block->lane->capture ? block->bytes : lochi_rest_count_live(block);
}

void lochi_rest_set(const lochi_pool *pool, const pool_block *block, size_t bytes, pool_rest from, pool_rest to)
{
    lochi_lock_assert_held(&pool->lock);
    for (uintptr_t at = block->start; at < block->start + bytes;) {
        pool_handle *handle = lochi_pool_find_handle(pool, at);
        if (handle && handle->rest == from) handle->rest = to;
        at = lochi_pool_find_end(pool, handle, at);
    }
}

loch_status lochi_rest_stock(lochi_pool *pool, size_t handles)
{
    lochi_lock_assert_held(&pool->lock);
    const size_t records = 2 * handles + 2;
    for (size_t stocked = 0; stocked < records + REST_RECORDS; stocked += REST_RECORDS)
        if (!lochi_pool_stock_records(pool, records))
            return LOCH_FAIL(HOST_MEMORY, "no host memory for the records of blocks");
    return LOCH_OK;
}

loch_status lochi_rest_set_aside(lochi_pool *pool, size_t handles, pool_block **out)
{
    LOCH_TRY_RETURN(lochi_rest_stock(pool, handles));
    *out = NULL;
    for (size_t i = 0; i < 2 * handles + 2; i++) {
        pool_block *record = lochi_pool_take_record(pool);
        record->list_next = *out;
        *out = record;
    }
    return LOCH_OK;
}

void lochi_rest_put_aside_back(lochi_pool *pool, pool_block *aside)
{
    lochi_lock_assert_held(&pool->lock);
    while (aside) {
        pool_block *next = aside->list_next;
        lochi_pool_drop_record(pool, aside);
        aside = next;
    }
}

pool_block *lochi_rest_release(lochi_pool *pool, pool_block *block, bool is_gone)
{
    lochi_lock_assert_held(&pool->lock);
    const uintptr_t end = block->start + block->bytes;
    const bool is_asleep = lochi_pool_is_asleep(lochi_pool_find_handle(pool, block->start));
    uintptr_t at = block->start;
    while (at < end && lochi_pool_is_asleep(lochi_pool_find_handle(pool, at)) == is_asleep)
        at = lochi_pool_find_end(pool, lochi_pool_find_handle(pool, at), at);
    if (at < end) lochi_pool_split(pool, block, at);
    if (is_asleep && !is_gone) return block;
    pool->sleep.dormant_bytes -= block->bytes;
    if (is_asleep) return lochi_pool_make_unmapped(pool, block);
    lochi_pool_hide(pool, block->start, block->bytes);
    if (lochi_pool_wipe_block(pool, block)) /* blocks freed during the sleep were not wiped */
        return lochi_pool_make_free(pool, block, pool->policy.is_wiped ? block->lane->epoch : 0);
    pool->used += block->bytes;
    return block;
}

bool lochi_rest_next_part(const lochi_pool *pool, const pool_block *block, size_t bytes, pool_rest rest, uintptr_t *at,
                          pool_part *out)
{
    lochi_lock_assert_held(&pool->lock);
    const uintptr_t end = block->start + bytes;
    while (*at < end) {
        pool_handle *handle = lochi_pool_find_handle(pool, *at);
        const uintptr_t handle_end = lochi_pool_find_end(pool, handle, *at),
                        part_end = handle_end < end ? handle_end : end;
        *out = (pool_part){handle, *at, part_end - *at};
        *at = handle_end;
        if (handle && handle->rest == rest) return true;
    }
    return false;
}

/* --- memory that the host may touch, for checking tools --- */

/* Paints memory of `bytes`, of which the first `live` are in use. Those are never hidden: other threads may use them
 * during the call. */
static void rest_paint_part(const lochi_pool *pool, uintptr_t start, size_t live, size_t bytes)
{
    if (live) lochi_pool_show(pool, start, live);
    if (bytes > live) lochi_pool_hide(pool, start + live, bytes - live);
}

static void rest_paint_block(const lochi_pool *pool, const pool_block *block)
{
    const pool_state state = lochi_pool_state(block);
    if (state == POOL_FREE || state == POOL_DORMANT) rest_paint_part(pool, block->start, 0, block->bytes);
    if (state == POOL_GROWABLE) rest_paint_part(pool, block->start, block->committed, 0);
    if ((state == POOL_USED || state == POOL_SPECIAL) && !lochi_pool_is_range(block)) /* a child paints its range */
        rest_paint_part(pool, block->start, lochi_pool_requested(block), block->bytes);
    for (uint32_t i = 0; state == POOL_SLAB && i < block->slab->count; i++) {
        const uint32_t word = atomic_load_explicit(&block->slab->words[i], memory_order_relaxed);
        const size_t bytes = block->slab->object_bytes, live = word & POOL_WORD_LIVE ? word & POOL_WORD_BYTES : 0;
        rest_paint_part(pool, block->start + i * bytes, live, bytes);
    }
}

void lochi_rest_paint(const lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    for (pool_block *block = NULL; pool->policy.checker && (block = lochi_pool_next_block(pool, block));)
        if (!lochi_pool_sleeps_at(pool, block->start, block->bytes)) rest_paint_block(pool, block);
}

void lochi_rest_settle(lochi_pool *pool)
{
    const loch_error saved = lochi_error_save();
    lochi_pool_go_outside(pool);
    if (loch_stream_sync(pool->default_stream) != LOCH_OK)
        (void)!loch_device_sync(pool->device); /* work that cannot be waited for in any way does not run */
    lochi_pool_come_back(pool);
    lochi_error_restore(&saved);
}
