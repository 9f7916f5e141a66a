/* SPDX-License-Identifier: MIT */
/* Wakes pools: creates memory for the sleeping handles that still have a live block and restores their contents;
 * creates memory for those with free memory of captures; removes the others. Joins neighbouring handles before that.
 * Dropped contents and free memory of captures are filled, with zeros unless the sleep chose another byte: new memory
 * of a driver may have old contents. The device copies while the host maps the next handles. All of that happens
 * outside the pool's lock. Blocks that other threads free meanwhile become dormant, and free memory at the end of the
 * wake. */
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "device/fill.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/front/front.h"
#include "memory/pool/supply/supply.h"
#include "memory/pool/trim/trim.h"
#include "memory/pool/sleeping/keep.h"
#include "memory/pool/sleeping/nap.h"
#include "memory/pool/state/state.h"
#include "memory/pool/moving/moving.h"
#include "memory/pool/sleeping/rest.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/recorder/recorder.h"

#define WAKE_RUN ((size_t)32 << 20) /* bytes that are worth a copy of their own */

/* Mapping a handle takes 48 us on an H200, whatever its size, and the bus copies 2.6 MiB meanwhile. Handles of 16 MiB
 * leave the host most of its time; larger ones would gain little, and are remapped less flexibly. */
#define WAKE_HANDLE ((size_t)16 << 20) /* largest handle that is joined under one block */
#define WAKE_CELLS 2                   /* cells in the largest handle that is joined under several blocks */

/* Contents that are copied back, or memory that is filled, in one call. */
typedef struct wake_run {
    pool_nap *nap;
    uintptr_t start;
    size_t bytes, offset;
    bool is_filled;
    unsigned char fill;
} wake_run;

/* A part of a block that a wake restores or fills. */
typedef struct wake_part {
    pool_part at;
    bool is_free; /* free memory of captures */
    bool is_new;  /* in another reservation than the part before */
} wake_part;

/* Copies a run back, or fills it. Does so outside the lock, except while a tool checks
 * accesses: a free by another thread would hide memory from the copy. */
static loch_status wake_flush(lochi_pool *pool, wake_run *run, pool_stage *stage)
{
    const wake_run whole = *run;
    run->bytes = 0;
    if (!whole.bytes) return LOCH_OK;
    if (!pool->policy.checker) lochi_pool_go_outside(pool);
    const loch_status status =
        whole.is_filled ? lochi_fill_own(pool->default_stream, (void *)whole.start, whole.bytes, whole.fill)
                        : lochi_keep_restore(&whole.nap->keep, stage, whole.start, whole.bytes, whole.offset);
    if (!pool->policy.checker) lochi_pool_come_back(pool);
    return status;
}

/* Adds a part to the current run, or copies the run back and starts a new one. */
static loch_status wake_add(lochi_pool *pool, wake_run *run, const wake_part *part, pool_stage *stage)
{
    const uintptr_t start = part->at.start;
    pool_nap *nap = part->at.handle->nap;
    const bool is_filled = part->is_free || nap->keep.contents == LOCH_SLEEP_DROP;
    const unsigned char fill = part->is_free ? 0 : nap->dropped;
    const size_t offset = is_filled ? start : lochi_nap_find_offset(nap, start);
    const bool is_next = run->nap == nap && run->start + run->bytes == start && run->offset + run->bytes == offset &&
                         run->is_filled == is_filled && run->fill == fill && !part->is_new;
    if (run->bytes && is_next) {
        run->bytes += part->at.bytes;
        return LOCH_OK;
    }
    LOCH_TRY_RETURN(wake_flush(pool, run, stage));
    *run = (wake_run){nap, start, part->at.bytes, offset, is_filled, fill};
    return LOCH_OK;
}

static loch_status wake_get_up_rest(lochi_pool *pool)
{
    for (pool_handle *handle = pool->sleep.handles, *next; handle; handle = next) {
        next = handle->next;
        if (handle->rest == POOL_WANTED) LOCH_TRY_RETURN(lochi_pool_get_up(pool, handle));
    }
    return LOCH_OK;
}

/* The parts that a wake restores or fills, by address. */
typedef struct wake_list {
    wake_part *parts;
    size_t count, capacity;
} wake_list;

static loch_status wake_list_add(wake_list *list, const wake_part *part)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 64;
        wake_part *grown = lochi_realloc(list->parts, capacity * sizeof *grown);
        if (!grown) return LOCH_FAIL(HOST_MEMORY, "no host memory for the list of saved contents");
        list->parts = grown;
        list->capacity = capacity;
    }
    list->parts[list->count++] = *part;
    return LOCH_OK;
}

/* Lists the live memory that sleeps, and the free memory of captures. Blocks may be freed during the wake, but handles
 * stay. */
static loch_status wake_find_parts(lochi_pool *pool, wake_list *list)
{
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        if (lochi_pool_state(block) == POOL_WAITING) continue;
        const size_t bytes = lochi_rest_count_kept(block);
        wake_part part = {.is_free = !lochi_rest_count_live(block)};
        for (uintptr_t at = block->start; lochi_rest_next_part(pool, block, bytes, POOL_WANTED, &at, &part.at);) {
            part.is_new = lochi_rest_begins_range(pool, block, part.at.start);
            LOCH_TRY_RETURN(wake_list_add(list, &part));
        }
    }
    return LOCH_OK;
}

/* Maps memory under all listed parts, and restores or fills it. The device copies while the host maps the next
 * handles. */
static loch_status wake_restore(lochi_pool *pool, const wake_list *list, pool_stage *stage, size_t *restored)
{
    wake_run run = {0};
    for (size_t i = 0; i < list->count; i++) {
        const wake_part *part = &list->parts[i];
        pool_handle *handle = part->at.handle;
        if (!handle->handle) {
            if (run.bytes >= WAKE_RUN) LOCH_TRY_RETURN(wake_flush(pool, &run, stage));
            LOCH_TRY_RETURN(lochi_pool_get_up(pool, handle));
        }
        LOCH_TRY_RETURN(wake_add(pool, &run, part, stage));
        if (!part->is_free && handle->nap->keep.contents != LOCH_SLEEP_DROP) *restored += part->at.bytes;
    }
    LOCH_TRY_RETURN(wake_flush(pool, &run, stage));
    LOCH_TRY_RETURN(wake_get_up_rest(pool));
    if (!list->count) return LOCH_OK;
    lochi_pool_go_outside(pool);
    const loch_status status = loch_stream_sync(pool->default_stream);
    lochi_pool_come_back(pool);
    return status;
}

/* Undoes a wake that failed: everything is asleep again. */
static void wake_undo(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
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
    for (pool_handle *handle = pool->sleep.handles; handle; handle = handle->next)
        handle->rest = POOL_ASLEEP;
    lochi_error_restore(&saved);
}

/* --- joining --- */

/* Tells whether the blocks from `block` to an address are all handed out and have one tag. Memory of captures is never
 * given back while the capture lives, so it is kept apart. */
static bool wake_are_alike(const pool_block *block, uintptr_t end)
{
    const pool_block *first = block;
    for (; block && block->start < end; block = block->behind) {
        if (!lochi_rest_count_kept(block)) continue;
        const pool_state state = lochi_pool_state(block);
        if (state != POOL_USED && state != POOL_SPECIAL) return false;
        if (block->tag != first->tag || !block->lane->capture != !first->lane->capture) return false;
    }
    return true;
}

/* Tells whether one handle may take the place of two neighbours. `first` is the first block with memory on `handle`,
 * `block` is one on `next`. Handles wholly under one block are given back together anyway. Others are not: free memory
 * on one of them has to wait for the blocks on the other one. */
static bool wake_may_join(const lochi_pool *pool, const pool_handle *handle, const pool_block *first,
                          const pool_handle *next, const pool_block *block)
{
    const size_t bytes = handle->bytes + next->bytes;
    const uintptr_t end = next->at + next->bytes;
    if (handle->handle || next->handle || handle->rest != POOL_WANTED || next->rest != POOL_WANTED) return false;
    if (handle->nap != next->nap || handle->at + handle->bytes != next->at) return false;
    if (lochi_pool_state(block) == POOL_GROWABLE) return false; /* it shrinks by handles */
    if (handle->at >= block->start && end <= block->start + block->bytes) return bytes <= WAKE_HANDLE;
    return !pool->policy.is_whole && bytes <= WAKE_CELLS * pool->cell_bytes && wake_are_alike(first, end);
}

/* Joins neighbouring handles that are about to get memory, so that the wake makes fewer driver calls. A program that
 * chose the size of its handles keeps them. */
static void wake_join(lochi_pool *pool)
{
    pool_handle *last = NULL;
    const pool_block *first = NULL;
    for (pool_block *block = NULL; !pool->options.handle_bytes && (block = lochi_pool_next_block(pool, block));) {
        const uintptr_t end = block->start + lochi_rest_count_kept(block);
        for (uintptr_t at = block->start; at < end;) {
            pool_handle *handle = lochi_pool_find_handle(pool, at);
            at = lochi_pool_find_end(pool, handle, at);
            if (!handle || handle == last) continue;
            if (last && wake_may_join(pool, last, first, handle, block)) {
                lochi_pool_join_asleep(pool, last, handle);
                continue;
            }
            last = handle;
            first = block;
        }
    }
}

/* --- waking --- */

/* Marks the sleeping handles with a live block or free memory of captures, joins them, lists live blocks, and sets
 * records aside for removing the other handles. */
static loch_status wake_prepare(lochi_pool *pool, wake_list *list, pool_block **aside)
{
    size_t forgotten = 0;
    lochi_pool_collect(pool);
    lochi_pool_drop_shrunk(pool); /* what was freed in annexes gets no memory */
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));)
        lochi_rest_set(pool, block, lochi_rest_count_kept(block), POOL_ASLEEP, POOL_WANTED);
    for (pool_handle *handle = pool->handles; handle;
         handle = handle->next) /* handles that a failed wake left mapped */
        if (handle->rest == POOL_ASLEEP) handle->rest = POOL_WANTED;
    wake_join(pool);
    for (const pool_handle *handle = pool->sleep.handles; handle; handle = handle->next)
        forgotten += handle->rest == POOL_ASLEEP;
    LOCH_TRY_RETURN(wake_find_parts(pool, list));
    return lochi_rest_set_aside(pool, forgotten, aside);
}

/* Completes a wake. Cannot fail. The handles in pool->asleep have no live block. */
static void wake_finish(lochi_pool *pool)
{
    lochi_pool_assert_both(pool);
    pool->sleep.naps = NULL;
    pool->sleep.is_asleep = false;
    for (pool_handle *handle = pool->handles; handle; handle = handle->next) {
        handle->rest = POOL_AWAKE;
        handle->nap = NULL;
    }
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        if (lochi_pool_state(block) == POOL_DORMANT) block = lochi_rest_release(pool, block, true);
        if (lochi_pool_state(block) == POOL_SLAB) lochi_pool_slab_wake(block->slab);
    }
    while (pool->sleep.handles) {
        lochi_pool_set_cells(pool, pool->sleep.handles->at, pool->sleep.handles->bytes, NULL);
        lochi_pool_forget_asleep(pool, pool->sleep.handles);
    }
    lochi_rest_paint(pool);
    lochi_pool_protect_again(pool);
    lochi_pool_go(pool);
}

static bool wake_needs_stage(const lochi_pool *pool)
{
    bool is_needed = false;
    for (const pool_nap *nap = pool->sleep.naps; nap; nap = nap->next)
        is_needed |= nap->keep.is_staged;
    return is_needed;
}

/* Wakes the pool. Sets *done to the naps for the caller to free. */
static loch_status wake_try(lochi_pool *pool, pool_stage *stage, size_t *restored, pool_nap **done)
{
    lochi_pool_assert_both(pool);
    wake_list list = {0};
    pool_block *aside = NULL;
    loch_status status;
    *restored = 0;
    for (const pool_nap *nap = pool->sleep.naps; nap; nap = nap->next)
        LOCH_TRY_RETURN(lochi_keep_check(&nap->keep));
    status = wake_prepare(pool, &list, &aside);
    if (status == LOCH_OK) status = wake_restore(pool, &list, stage, restored);
    lochi_rest_put_aside_back(pool, aside);
    lochi_free(list.parts);
    if (status != LOCH_OK) {
        wake_undo(pool);
        *restored = 0;
        return status;
    }
    *done = pool->sleep.naps;
    wake_finish(pool);
    return LOCH_OK;
}

/* Wakes the pool, with a stage if one is needed. Sets *needs_stage and does nothing else if it is missing. */
static loch_status wake_locked(lochi_pool *pool, pool_stage *stage, size_t *restored, bool *needs_stage)
{
    pool_nap *done = NULL;
    loch_status status = LOCH_OK;
    lochi_pool_take_locks(pool);
    *needs_stage = wake_needs_stage(pool) && !stage->memory;
    if (!*needs_stage && pool->sleep.naps) status = wake_try(pool, stage, restored, &done);
    lochi_pool_drop_locks(pool);
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
    stage.is_wiped = pool->policy.is_wiped;
    status = wake_locked(pool, &stage, restored, &needs_stage);
    lochi_stage_close(&stage);
    return status;
}

/* Returns the bytes of the handles that get memory in a wake. Others had all of their blocks freed since. */
static size_t wake_count_needed(lochi_pool *pool)
{
    size_t bytes = 0;
    lochi_pool_assert_both(pool);
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));)
        lochi_rest_set(pool, block, lochi_rest_count_kept(block), POOL_ASLEEP, POOL_WANTED);
    for (const pool_handle *handle = pool->sleep.handles; handle; handle = handle->next)
        if (handle->rest == POOL_WANTED) bytes += handle->bytes;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));)
        lochi_rest_set(pool, block, lochi_rest_count_kept(block), POOL_WANTED, POOL_ASLEEP);
    return bytes;
}

/* Gives back unused memory of this pool and of other pools. Returns the bytes given back. */
static size_t wake_make_room(lochi_pool *pool, loch_status why)
{
    const loch_error saved = lochi_error_save();
    lochi_pool_take_locks(pool);
    size_t gone = lochi_pool_trim(pool, 0);
    const size_t needed = wake_count_needed(pool);
    lochi_pool_drop_locks(pool);
    if (why == LOCH_E_LIMIT || pool->is_related) gone += lochi_pool_ask_family(pool, needed, false);
    if (why == LOCH_E_DEVICE_MEMORY) gone += lochi_pool_ask_siblings(pool, needed, why);
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
    if (status == LOCH_OK) lochi_recorder_note_wake(lochi_recorder_of(self->allocator), bytes);
    if (restored) *restored = bytes;
    return status;
}
