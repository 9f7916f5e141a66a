/* SPDX-License-Identifier: MIT */
/* Wakes pools: creates memory for the sleeping handles that still have a live block and restores their contents;
 * removes the others. The device copies while the host maps the next handles. */
#include "base/fail.h"
#include "base/logging.h"
#include "memory/pool/cells.h"
#include "memory/pool/gate.h"
#include "memory/pool/handle.h"
#include "memory/pool/heap.h"
#include "memory/pool/keep.h"
#include "memory/pool/nap.h"
#include "memory/pool/poison.h"
#include "memory/pool/process.h"
#include "memory/pool/protect.h"
#include "memory/pool/rest.h"
#include "memory/pool/slab.h"
#include "memory/pool/trim.h"
#include "memory/pool/uses.h"

#define WAKE_RUN ((size_t)32 << 20) /* bytes that are worth a copy of their own */

/* Contents that are copied back in one call. */
typedef struct wake_run {
    pool_nap *nap;
    uintptr_t start;
    size_t bytes, offset;
} wake_run;

static loch_status wake_flush(wake_run *run, pool_stage *stage)
{
    const wake_run whole = *run;
    run->bytes = 0;
    return whole.bytes ? lochi_keep_restore(&whole.nap->keep, stage, whole.start, whole.bytes, whole.offset) : LOCH_OK;
}

/* Adds a part to the current run, or copies the run back and starts a new one. */
static loch_status wake_add(wake_run *run, const pool_part *part, pool_stage *stage)
{
    pool_nap *nap = part->handle->nap;
    const size_t offset = lochi_nap_find_offset(nap, part->start);
    const bool is_next =
        run->nap == nap && run->start + run->bytes == part->start && run->offset + run->bytes == offset;
    if (run->bytes && is_next) {
        run->bytes += part->bytes;
        return LOCH_OK;
    }
    LOCH_TRY_RETURN(wake_flush(run, stage));
    *run = (wake_run){nap, part->start, part->bytes, offset};
    return LOCH_OK;
}

static loch_status wake_get_up_rest(lochi_pool *pool)
{
    for (pool_handle *handle = pool->asleep, *next; handle; handle = next) {
        next = handle->next;
        if (handle->rest == POOL_WANTED) LOCH_TRY_RETURN(lochi_pool_get_up(pool, handle));
    }
    return LOCH_OK;
}

/* Maps memory under all live blocks that sleep, and restores their contents. The device copies while the host maps
 * the next handles. */
static loch_status wake_restore(lochi_pool *pool, pool_stage *stage, size_t *restored)
{
    wake_run run = {0};
    pool_part part;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        if (lochi_pool_state(block) == POOL_WAITING) continue;
        for (uintptr_t at = block->start; lochi_rest_next_part(pool, block, POOL_WANTED, &at, &part);) {
            if (!part.handle->handle) {
                if (run.bytes >= WAKE_RUN) LOCH_TRY_RETURN(wake_flush(&run, stage));
                LOCH_TRY_RETURN(lochi_pool_get_up(pool, part.handle));
            }
            if (part.handle->nap->keep.contents == LOCH_SLEEP_DROP) continue;
            LOCH_TRY_RETURN(wake_add(&run, &part, stage));
            *restored += part.bytes;
        }
    }
    LOCH_TRY_RETURN(wake_flush(&run, stage));
    LOCH_TRY_RETURN(wake_get_up_rest(pool));
    return *restored ? lochi_keep_finish(&run.nap->keep, stage, false) : LOCH_OK;
}

/* Undoes a wake that failed: everything is asleep again. */
static void wake_undo(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    const loch_error saved = lochi_error_save();
    lochi_rest_settle(pool);
    for (pool_handle *handle = pool->handles, *next; handle; handle = next) {
        next = handle->next;
        if (handle->rest != POOL_WANTED) continue;
        handle->rest = POOL_ASLEEP;
        if (lochi_pool_lay_down(pool, handle) !=
            LOCH_OK) /* the handle stays mapped, and the next wake restores its contents */
            LOCHI_LOG(WARNING, "a sleeping block keeps its memory, because it cannot be unmapped: %s",
                      loch_error_get()->sentence);
    }
    for (pool_handle *handle = pool->asleep; handle; handle = handle->next)
        handle->rest = POOL_ASLEEP;
    lochi_error_restore(&saved);
}

/* Marks the sleeping handles with a live block, and stocks the records for removing the others. */
static loch_status wake_prepare(lochi_pool *pool)
{
    size_t forgotten = 0;
    lochi_pool_collect(pool);
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));)
        lochi_rest_set(pool, block, lochi_rest_count_live(block), POOL_ASLEEP, POOL_WANTED);
    for (pool_handle *handle = pool->handles; handle;
         handle = handle->next) /* handles that a failed wake left mapped */
        if (handle->rest == POOL_ASLEEP) handle->rest = POOL_WANTED;
    for (const pool_handle *handle = pool->asleep; handle; handle = handle->next)
        forgotten += handle->rest == POOL_ASLEEP;
    return lochi_rest_stock(pool, forgotten);
}

/* Makes the start of a dormant block free, or bare if its handle is removed. The rest stays dormant. */
static pool_block *wake_release_part(lochi_pool *pool, pool_block *block)
{
    const uintptr_t end = block->start + block->bytes;
    const bool is_bare = lochi_pool_is_asleep(lochi_pool_find_handle(pool, block->start));
    uintptr_t at = block->start;
    while (at < end && lochi_pool_is_asleep(lochi_pool_find_handle(pool, at)) == is_bare)
        at = lochi_pool_find_end(pool, lochi_pool_find_handle(pool, at), at);
    if (at < end) lochi_pool_split(pool, block, at);
    pool->dormant_bytes -= block->bytes;
    if (is_bare) return lochi_pool_make_bare(pool, block);
    lochi_pool_hide(pool, block->start, block->bytes);
    return lochi_pool_make_free(pool, block, 0);
}

/* Completes a wake. Cannot fail. The handles in pool->asleep have no live block. */
static void wake_finish(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    pool->naps = NULL;
    pool->is_asleep = false;
    for (pool_handle *handle = pool->handles; handle; handle = handle->next) {
        handle->rest = POOL_AWAKE;
        handle->nap = NULL;
    }
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        if (lochi_pool_state(block) == POOL_DORMANT) block = wake_release_part(pool, block);
        if (lochi_pool_state(block) == POOL_SLAB) lochi_pool_slab_wake(block->slab);
    }
    while (pool->asleep) {
        lochi_pool_set_cells(pool, pool->asleep->at, pool->asleep->bytes, NULL);
        lochi_pool_forget_asleep(pool, pool->asleep);
    }
    lochi_rest_paint(pool);
    lochi_pool_protect_again(pool);
    lochi_pool_go(pool);
}

static bool wake_needs_stage(const lochi_pool *pool)
{
    bool is_needed = false;
    for (const pool_nap *nap = pool->naps; nap; nap = nap->next)
        is_needed |= nap->keep.is_staged;
    return is_needed;
}

/* Wakes the pool. Sets *done to the naps for the caller to free. */
static loch_status wake_try(lochi_pool *pool, pool_stage *stage, size_t *restored, pool_nap **done)
{
    lochi_lock_assert_held(&pool->lock);
    loch_status status;
    *restored = 0;
    for (const pool_nap *nap = pool->naps; nap; nap = nap->next)
        LOCH_TRY_RETURN(lochi_keep_check(&nap->keep));
    LOCH_TRY(wake_prepare(pool), fail);
    LOCH_TRY(wake_restore(pool, stage, restored), fail);
    *done = pool->naps;
    wake_finish(pool);
    return LOCH_OK;
fail:
    wake_undo(pool);
    *restored = 0;
    return status;
}

/* Wakes the pool, with a stage if one is needed. Sets *needs_stage and does nothing else if it is missing. */
static loch_status wake_locked(lochi_pool *pool, pool_stage *stage, size_t *restored, bool *needs_stage)
{
    pool_nap *done = NULL;
    loch_status status = LOCH_OK;
    lochi_lock_take(&pool->lock);
    *needs_stage = wake_needs_stage(pool) && !stage->memory;
    if (!*needs_stage && pool->naps) status = wake_try(pool, stage, restored, &done);
    lochi_lock_drop(&pool->lock);
    lochi_nap_destroy_all(done);
    return status;
}

static loch_status wake_once(lochi_pool *pool, size_t *restored)
{
    pool_stage stage = {0};
    bool needs_stage;
    loch_status status = wake_locked(pool, &stage, restored, &needs_stage);
    if (status != LOCH_OK || !needs_stage) return status;
    LOCH_TRY_RETURN(lochi_stage_open(&stage, pool->device));
    stage.is_wiped = pool->is_wiped;
    status = wake_locked(pool, &stage, restored, &needs_stage);
    lochi_stage_close(&stage);
    return status;
}

/* Gives back unused memory of this pool and of other pools. Returns the bytes given back. */
static size_t wake_make_room(lochi_pool *pool, loch_status why)
{
    const loch_error saved = lochi_error_save();
    lochi_lock_take(&pool->lock);
    size_t gone = lochi_pool_trim(pool, 0);
    const size_t asleep = pool->asleep_bytes;
    lochi_lock_drop(&pool->lock);
    if (why == LOCH_E_LIMIT) gone += lochi_pool_ask_family(pool, asleep, false);
    if (why == LOCH_E_DEVICE_MEMORY) gone += lochi_pool_ask_siblings(pool);
    lochi_error_restore(&saved);
    return gone;
}

loch_status loch_pool_wake(loch_allocator *pool, size_t *restored)
{
    size_t bytes = 0;
    if (restored) *restored = 0;
    lochi_pool *self = lochi_pool_of(pool);
    if (!self) return LOCH_FAIL(INVALID, "\"%s\" is not a pool", loch_allocator_get_name(pool));
    loch_status status = wake_once(self, &bytes);
    const bool is_short = status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT;
    if (is_short && wake_make_room(self, status)) status = wake_once(self, &bytes);
    if (restored) *restored = bytes;
    return status;
}
