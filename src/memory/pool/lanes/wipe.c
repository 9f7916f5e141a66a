/* SPDX-License-Identifier: MIT */
/* LOCH_POOL_WIPE_FREED: no later owner sees the contents of freed memory. Memory is filled with zeros when it
 * becomes free, on the stream in whose order it is free. so all free memory of the pool is clean.
 *
 * Memory that cannot be filled now counts as used and waits, in a list or marked in its slab. The pool tries again
 * whenever it looks for waiting blocks. The fast path is closed in such a pool. */
#include "memory/pool/lanes/wipe.h"
#include "base/fail.h"
#include "device/copy.h"
#include "memory/pool/lanes/block.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/lanes/lane.h"
#include "memory/pool/state/state.h"
#include "memory/pool/lanes/slab.h"
#include "device/fill.h"

/* Fills memory of a stream that was destroyed. Its work must have passed. The host waits for the fill, so that the
 * next user of the lane is ordered after it. */
static loch_status wipe_fill_closed(lochi_pool *pool, pool_lane *lane, uintptr_t start, size_t bytes)
{
    lochi_pool_poll(pool, lane);
    if (!lochi_pool_has_passed(lane, lane->epoch))
        return LOCH_FAIL(BUSY, "work of a stream that was destroyed is unfinished");
    LOCH_TRY_RETURN(lochi_fill_own(pool->default_stream, (void *)start, bytes, 0));
    return loch_stream_sync(pool->default_stream);
}

static loch_status wipe_fill(lochi_pool *pool, pool_lane *lane, uintptr_t start, size_t bytes)
{
    loch_status status;
    lochi_pool_show(pool, start, bytes);
    if (lane->is_closed)
        status = wipe_fill_closed(pool, lane, start, bytes);
    else if (lochi_pool_is_under_capture(pool, lane)) /* the fill would become part of the graph */
        status = LOCH_FAIL(BUSY, "memory cannot be wiped on a stream that is captured");
    else
        status = lochi_fill_own(lane->stream, (void *)start, bytes, 0);
    lochi_pool_hide(pool, start, bytes);
    return status;
}

/* Fills the memory that is awake. Sleeping handles have no memory, or are about to lose it or to get it back. Their
 * saved contents are wiped when they are freed, and memory that was freed meanwhile when it wakes. */
static loch_status wipe_awake(lochi_pool *pool, pool_lane *lane, uintptr_t at, uintptr_t end)
{
    while (at < end) {
        const pool_handle *handle = lochi_pool_find_cell(pool, at)->handle;
        const uintptr_t next = handle->at + handle->bytes < end ? handle->at + handle->bytes : end;
        if (!lochi_pool_is_asleep(handle)) LOCH_TRY_RETURN(wipe_fill(pool, lane, at, next - at));
        at = next;
    }
    return LOCH_OK;
}

loch_status lochi_pool_wipe(lochi_pool *pool, pool_lane *lane, uintptr_t start, size_t bytes)
{
    lochi_lock_assert_held(&pool->lock);
    if (LOCHI_LIKELY(!pool->is_wiped) || lane->capture || !bytes) return LOCH_OK;
    if (lochi_pool_sleeps_at(pool, start, bytes)) return wipe_awake(pool, lane, start, start + bytes);
    return wipe_fill(pool, lane, start, bytes);
}

bool lochi_pool_wipe_block(lochi_pool *pool, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    if (LOCHI_LIKELY(!pool->is_wiped)) return true;
    const loch_error saved = lochi_error_save();
    const bool is_wiped = lochi_pool_wipe(pool, block->lane, block->start, block->bytes) == LOCH_OK;
    lochi_error_restore(&saved);
    if (is_wiped) return true;
    lochi_pool_set_state(block, POOL_WAITING);
    if (!block->is_annex) lochi_pool_enter_page(pool, block->start, POOL_MARK(block->start));
    lochi_pool_enlist(&pool->dirty, block);
    pool->waiting_bytes += block->bytes;
    return false;
}

static uintptr_t wipe_address(const pool_slab *slab, const pool_word *word)
{
    return slab->start + (uintptr_t)(word - slab->words) * slab->object_bytes;
}

bool lochi_pool_wipe_word(lochi_pool *pool, pool_slab *slab, pool_word *word)
{
    lochi_lock_assert_held(&pool->lock);
    if (LOCHI_LIKELY(!pool->is_wiped)) return true;
    const loch_error saved = lochi_error_save();
    const bool is_wiped = lochi_pool_wipe(pool, slab->lane, wipe_address(slab, word), slab->object_bytes) == LOCH_OK;
    lochi_error_restore(&saved);
    if (is_wiped) return true;
    atomic_store_explicit(word, POOL_WORD_FREED | POOL_WORD_DIRTY, memory_order_relaxed);
    pool->dirty_words++;
    pool->waiting_bytes += slab->object_bytes;
    return false;
}

static bool wipe_blocks_again(lochi_pool *pool)
{
    bool has_freed = false;
    for (pool_block *block = pool->dirty, *next; block; block = next) {
        next = block->list_next;
        if (lochi_pool_wipe(pool, block->lane, block->start, block->bytes) != LOCH_OK) continue;
        lochi_pool_unlist(block);
        pool->waiting_bytes -= block->bytes;
        lochi_pool_uncount(pool, block);
        lochi_pool_make_free(pool, block, block->lane->epoch);
        has_freed = true;
    }
    return has_freed;
}

/* Wipes the blocks of a slab again. Returns false if the slab ended with its last block. */
static bool wipe_slab_again(lochi_pool *pool, pool_block *block)
{
    pool_slab *slab = block->slab;
    for (uint32_t i = 0; i < slab->count && pool->dirty_words; i++) {
        pool_word *word = &slab->words[i];
        const uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
        if (seen & POOL_WORD_LIVE || !(seen & POOL_WORD_DIRTY)) continue;
        if (lochi_pool_wipe(pool, slab->lane, wipe_address(slab, word), slab->object_bytes) != LOCH_OK) continue;
        pool->dirty_words--;
        pool->waiting_bytes -= slab->object_bytes;
        lochi_pool_slab_give(pool, slab, word);
        if (block->slab != slab) return false;
    }
    return true;
}

/* Wipes small blocks again. A slab that ends merges with its neighbours, so the walk starts again then. */
static void wipe_words_again(lochi_pool *pool)
{
    for (pool_block *block = NULL; pool->dirty_words && (block = lochi_pool_next_block(pool, block));)
        if (lochi_pool_state(block) == POOL_SLAB && !wipe_slab_again(pool, block)) block = NULL;
}

bool lochi_pool_wipe_again(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    if (LOCHI_LIKELY(!pool->dirty && !pool->dirty_words)) return false;
    const loch_error saved = lochi_error_save();
    const size_t words = pool->dirty_words;
    const bool has_freed = wipe_blocks_again(pool);
    wipe_words_again(pool);
    lochi_error_restore(&saved);
    return has_freed || pool->dirty_words < words;
}

static loch_status wipe_free_words(lochi_pool *pool, const pool_slab *slab)
{
    for (uint32_t i = 0; i < slab->count; i++) {
        const pool_word *word = &slab->words[i];
        const uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
        if (!(seen & POOL_WORD_LIVE) && seen & POOL_WORD_FREED)
            LOCH_TRY_RETURN(wipe_fill(pool, slab->lane, wipe_address(slab, word), slab->object_bytes));
    }
    return LOCH_OK;
}

/* Tells whether a lane belongs to a capture; 0 stands for all captures. */
static bool wipe_is_of(const pool_lane *lane, uint64_t capture)
{
    return capture ? lane->capture == capture : lane->capture != 0;
}

loch_status lochi_pool_wipe_capture(lochi_pool *pool, uint64_t capture)
{
    lochi_lock_assert_held(&pool->lock);
    if (!pool->is_wiped) return LOCH_OK;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        const pool_state state = lochi_pool_state(block);
        if ((state != POOL_FREE && state != POOL_SLAB) || !wipe_is_of(block->lane, capture)) continue;
        if (lochi_pool_sleeps_at(pool, block->start, block->bytes)) continue; /* it has no contents */
        LOCH_TRY_RETURN(state == POOL_SLAB ? wipe_free_words(pool, block->slab)
                                           : wipe_fill(pool, block->lane, block->start, block->bytes));
    }
    return LOCH_OK;
}
