/* SPDX-License-Identifier: MIT */
/* Pools that sleep: handles give their memory back while blocks stay out at their addresses, and get new memory there.
 *
 * A sleep chooses handles, saves what lies in them, and lays them down: their records stay, without memory, and their
 * cells lead to them as before. So blocks are found, walked and freed as always; what is free there is dormant. The gate is
 * closed all the while, because the short ways would hand out again what was freed. A wake creates memory for the handles
 * that still have a block, restores, and forgets the others.
 *
 * Room for the contents comes from other allocators, and their locks are taken before this pool's. So a sleep first looks
 * how much it needs, then takes the room without the lock, and looks again. */
#include "memory/pool/keep.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "base/sized.h"
#include "memory/pool/handle.h"

#define SLEEP_TRIES 16              /* of a pool that fills while room is taken for what was in it */
#define SLEEP_RECORDS 31            /* that one batch of records holds at least */
#define WAKE_RUN ((size_t)32 << 20) /* that is worth a copy of its own */

/* Contents at addresses, kept from an offset on. */
typedef struct pool_range {
    uintptr_t start;
    size_t bytes, offset;
} pool_range;

/* One sleep. */
typedef struct pool_nap {
    struct pool_nap *next;
    loch_tag tag; /* 0: everything */
    pool_keep keep;
    pool_range *ranges; /* by address */
    size_t ranges_count, ranges_capacity;
    size_t bytes; /* of all ranges */
} pool_nap;

/* --- blocks and their handles --- */

static pool_handle *sleep_handle_at(const lochi_pool *pool, uintptr_t address)
{
    const pool_cell *cell = lochi_pool_find_cell(pool, address);
    return cell ? cell->handle : NULL;
}

/* Where the handle at an address ends, or the cell when there is none. */
static uintptr_t sleep_end_of(const lochi_pool *pool, const pool_handle *handle, uintptr_t address)
{
    return handle ? handle->at + handle->bytes : (address & ~(uintptr_t)(pool->cell_bytes - 1)) + pool->cell_bytes;
}

static bool sleep_is_asleep(const pool_handle *handle)
{
    return handle && handle->rest >= POOL_ASLEEP;
}

bool lochi_pool_sleeps_in(const lochi_pool *pool, uintptr_t start, size_t bytes)
{
    for (uintptr_t at = start; at < start + bytes;) {
        const pool_handle *handle = sleep_handle_at(pool, at);
        if (sleep_is_asleep(handle)) return true;
        at = sleep_end_of(pool, handle, at);
    }
    return false;
}

loch_status lochi_pool_refuse_asleep(const lochi_pool *pool)
{
    if (pool->is_forked) return lochi_device_refuse_forked(pool->device);
    return LOCH_FAIL(BUSY, "the pool \"%s\" sleeps: wake it first", loch_allocator_get_name(pool->allocator));
}

loch_status lochi_pool_refuse_at(const void *address)
{
    return LOCH_FAIL(BUSY, "the block at %p sleeps: wake its pool first", address);
}

/* Bytes of a block that somebody has, or that waits for streams; 0 for all others. */
static size_t sleep_live_bytes(const pool_block *block)
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

/* Gives the handles under a live block a state. */
static void sleep_set_rest(const lochi_pool *pool, const pool_block *block, size_t bytes, pool_rest from, pool_rest to)
{
    for (uintptr_t at = block->start; at < block->start + bytes;) {
        pool_handle *handle = sleep_handle_at(pool, at);
        if (handle && handle->rest == from) handle->rest = to;
        at = sleep_end_of(pool, handle, at);
    }
}

/* --- choosing --- */

static bool sleep_slab_has_only(const pool_slab *slab, loch_tag tag)
{
    for (uint32_t i = 0; i < slab->count; i++) {
        const uint64_t word = atomic_load_explicit(&slab->words[i], memory_order_relaxed);
        if (word & POOL_WORD_LIVE && (word >> POOL_WORD_TAG_SHIFT & UINT16_MAX) != tag) return false;
    }
    return true;
}

static bool sleep_is_of(const pool_block *block, loch_tag tag)
{
    const pool_state state = lochi_pool_state(block);
    if (!tag) return true;
    return state == POOL_SLAB ? sleep_slab_has_only(block->slab, tag) : lochi_pool_is_out(state) && block->tag == tag;
}

/* Why a block that is to sleep cannot. */
static loch_status sleep_check_block(const pool_block *block)
{
    if (block->is_captured)
        return LOCH_FAIL(BUSY, "the block at %p is of a capture that was not released", (void *)block->start);
    if (lochi_pool_is_range(block))
        return LOCH_FAIL(BUSY, "a child pool lives at %p: it has to end before its parent's memory sleeps",
                         (void *)block->start);
    if (lochi_pool_state(block) == POOL_WAITING)
        return LOCH_FAIL(BUSY, "streams still use the block that was freed at %p", (void *)block->start);
    return LOCH_OK;
}

/* Marks the handles that go: those with a block of the tag and none of others. */
static loch_status sleep_choose(lochi_pool *pool, loch_tag tag)
{
    for (pool_handle *handle = pool->handles; handle && !tag; handle = handle->next)
        if (handle->rest == POOL_AWAKE) handle->rest = POOL_CHOSEN;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        const bool is_kept_free = lochi_pool_state(block) == POOL_FREE && block->is_captured; /* graphs write there */
        const size_t live = is_kept_free && !tag ? block->bytes : sleep_live_bytes(block);
        if (!live || !sleep_is_of(block, tag)) continue;
        LOCH_TRY_RETURN(sleep_check_block(block));
        if (tag) sleep_set_rest(pool, block, live, POOL_AWAKE, POOL_CHOSEN);
    }
    for (pool_block *block = NULL; tag && (block = lochi_pool_next_block(pool, block));) {
        const bool is_kept_free = lochi_pool_state(block) == POOL_FREE && block->is_captured;
        const size_t live = is_kept_free ? block->bytes : sleep_live_bytes(block);
        if (live && (is_kept_free || !sleep_is_of(block, tag)))
            sleep_set_rest(pool, block, live, POOL_CHOSEN, POOL_AWAKE);
    }
    for (const pool_handle *handle = pool->handles; handle; handle = handle->next)
        if (handle->rest == POOL_CHOSEN && handle->mappings > 1)
            return LOCH_FAIL(BUSY, "an old address of memory at %p is still in use", (void *)handle->at);
    return LOCH_OK;
}

static void sleep_unchoose(lochi_pool *pool)
{
    for (pool_handle *handle = pool->handles; handle; handle = handle->next)
        if (handle->rest == POOL_CHOSEN) handle->rest = POOL_AWAKE;
}

/* Records for cutting blocks at both ends of `handles` handles. */
static loch_status sleep_stock(lochi_pool *pool, size_t handles)
{
    const size_t records = 2 * handles + 2;
    for (size_t stocked = 0; stocked < records + SLEEP_RECORDS; stocked += SLEEP_RECORDS)
        if (!lochi_pool_stock_records(pool, records)) return LOCH_FAIL(HOST_MEMORY, "no host memory to note blocks");
    return LOCH_OK;
}

/* --- what is saved --- */

static loch_status nap_add_range(pool_nap *nap, uintptr_t start, size_t bytes)
{
    pool_range *last = nap->ranges_count ? &nap->ranges[nap->ranges_count - 1] : NULL;
    if (last && last->start + last->bytes == start) {
        last->bytes += bytes;
    } else {
        if (nap->ranges_count == nap->ranges_capacity) {
            const size_t capacity = nap->ranges_capacity ? 2 * nap->ranges_capacity : 64;
            pool_range *grown = lochi_realloc(nap->ranges, capacity * sizeof *grown);
            if (!grown) return LOCH_FAIL(HOST_MEMORY, "no host memory to note what sleeps");
            nap->ranges = grown;
            nap->ranges_capacity = capacity;
        }
        nap->ranges[nap->ranges_count++] = (pool_range){start, bytes, nap->bytes};
    }
    nap->bytes += bytes;
    return LOCH_OK;
}

/* A part of a live block that lies in one handle. */
typedef struct sleep_part {
    pool_handle *handle;
    uintptr_t start;
    size_t bytes;
} sleep_part;

/* The first in a handle of a state at or behind *at, which goes behind it; false when there is none. */
static bool sleep_next_part(const lochi_pool *pool, const pool_block *block, pool_rest rest, uintptr_t *at,
                            sleep_part *out)
{
    const uintptr_t end = block->start + sleep_live_bytes(block);
    while (*at < end) {
        pool_handle *handle = sleep_handle_at(pool, *at);
        const uintptr_t handle_end = sleep_end_of(pool, handle, *at), part_end = handle_end < end ? handle_end : end;
        *out = (sleep_part){handle, *at, part_end - *at};
        *at = handle_end;
        if (handle && handle->rest == rest) return true;
    }
    return false;
}

static loch_status nap_find_ranges(const lochi_pool *pool, pool_nap *nap)
{
    nap->ranges_count = nap->bytes = 0;
    if (nap->keep.contents == LOCH_SLEEP_DROP) return LOCH_OK;
    sleep_part part;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));)
        for (uintptr_t at = block->start; sleep_next_part(pool, block, POOL_CHOSEN, &at, &part);)
            LOCH_TRY_RETURN(nap_add_range(nap, part.start, part.bytes));
    return LOCH_OK;
}

static loch_status nap_save(pool_nap *nap, pool_stage *stage)
{
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < nap->ranges_count && status == LOCH_OK; i++)
        status = lochi_keep_save(&nap->keep, stage, nap->ranges[i].start, nap->ranges[i].bytes, nap->ranges[i].offset);
    if (status == LOCH_OK && nap->ranges_count) status = lochi_keep_finish(&nap->keep, stage, true);
    return status;
}

/* The offset of an address that was saved. */
static size_t nap_find_offset(const pool_nap *nap, uintptr_t address)
{
    size_t low = 0, high = nap->ranges_count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (nap->ranges[middle].start <= address)
            low = middle;
        else
            high = middle;
    }
    return nap->ranges[low].offset + (address - nap->ranges[low].start);
}

static void nap_destroy(pool_nap *nap)
{
    lochi_keep_close(&nap->keep);
    lochi_free(nap->ranges);
    lochi_free(nap);
}

static void nap_destroy_all(pool_nap *nap)
{
    while (nap) {
        pool_nap *next = nap->next;
        nap_destroy(nap);
        nap = next;
    }
}

void lochi_pool_close_naps(lochi_pool *pool)
{
    nap_destroy_all(pool->naps);
    pool->naps = NULL;
}

/* --- what the host may touch, for tools that look --- */

static void sleep_paint_block(const lochi_pool *pool, const pool_block *block)
{
    const pool_state state = lochi_pool_state(block);
    if (state == POOL_FREE || state == POOL_DORMANT || lochi_pool_is_out(state) || state == POOL_SLAB)
        lochi_pool_hide(pool, block->start, state == POOL_GROWABLE ? 0 : block->bytes);
    if (state == POOL_GROWABLE) lochi_pool_show(pool, block->start, block->committed);
    if (state == POOL_USED || state == POOL_SPECIAL) lochi_pool_show(pool, block->start, lochi_pool_requested(block));
    for (uint32_t i = 0; state == POOL_SLAB && i < block->slab->count; i++) {
        const uint64_t word = atomic_load_explicit(&block->slab->words[i], memory_order_relaxed);
        if (word & POOL_WORD_LIVE)
            lochi_pool_show(pool, block->start + (uintptr_t)i * block->slab->object_bytes, word & POOL_WORD_BYTES);
    }
}

/* As it has to be while nothing is copied as a whole. */
static void sleep_paint(const lochi_pool *pool)
{
    for (pool_block *block = NULL; pool->checker && (block = lochi_pool_next_block(pool, block));)
        if (!lochi_pool_sleeps_at(pool, block->start, block->bytes)) sleep_paint_block(pool, block);
}

/* --- laying down --- */

/* Cuts what sleeps at the start of a free block off, or what does not; returns that part. */
static pool_block *sleep_cut_free(lochi_pool *pool, pool_block *block)
{
    const uintptr_t end = block->start + block->bytes;
    const bool is_asleep = sleep_is_asleep(sleep_handle_at(pool, block->start));
    uintptr_t at = block->start;
    while (at < end && sleep_is_asleep(sleep_handle_at(pool, at)) == is_asleep)
        at = sleep_end_of(pool, sleep_handle_at(pool, at), at);
    lochi_pool_unbin(pool, block);
    if (at < end) lochi_pool_rebin(pool, lochi_pool_split(pool, block, at));
    if (is_asleep) return lochi_pool_make_dormant(pool, block);
    lochi_pool_rebin(pool, block);
    return block;
}

/* Free blocks and slabs of handles that sleep now. */
static void sleep_hide_blocks(lochi_pool *pool)
{
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        const pool_state state = lochi_pool_state(block);
        if (state != POOL_FREE && state != POOL_SLAB) continue;
        if (!lochi_pool_sleeps_at(pool, block->start, block->bytes)) continue;
        if (state == POOL_FREE)
            block = sleep_cut_free(pool, block);
        else
            lochi_pool_slab_sleep(block->slab);
    }
}

/* Lays all chosen handles down. One that cannot be unmapped stays as it is; fails when that is so for all. */
static loch_status sleep_lay_down(lochi_pool *pool, pool_nap *nap)
{
    loch_status status = LOCH_OK;
    bool has_any = false;
    for (pool_handle *handle = pool->handles, *next; handle; handle = next) {
        next = handle->next;
        if (handle->rest != POOL_CHOSEN) continue;
        const loch_status laid = lochi_pool_lay_down(pool, handle);
        if (laid != LOCH_OK) {
            status = laid;
            handle->rest = POOL_AWAKE;
            continue;
        }
        handle->rest = POOL_ASLEEP;
        handle->nap = nap;
        has_any = true;
    }
    if (has_any && status != LOCH_OK)
        LOCHI_LOG(WARNING, "not all memory of a pool that sleeps went back: %s", loch_error_get()->sentence);
    return has_any ? LOCH_OK : status;
}

/* Whether something that is to sleep does already. */
static loch_status sleep_check(const lochi_pool *pool, loch_tag tag)
{
    for (const pool_nap *nap = pool->naps; nap; nap = nap->next)
        if (!nap->tag || nap->tag == tag)
            return LOCH_FAIL(BUSY, "the pool \"%s\" sleeps already%s", loch_allocator_get_name(pool->allocator),
                             nap->tag ? " as far as the tag goes" : "");
    return LOCH_OK;
}

/* Waits until nobody uses anything, and gives back what is free. No block is left in two places. */
static loch_status sleep_calm(lochi_pool *pool)
{
    loch_status status;
    pool_lane *lane = lochi_pool_lane(pool, pool->default_stream, &status);
    if (!lane) return status;
    LOCH_TRY_RETURN(lochi_pool_mend_all(pool, lane));
    lochi_pool_trim(pool, 0);
    status = lochi_pool_wait_for_all(pool);
    if (status != LOCH_OK) /* the record may be an older one's */
        return loch_error_set(status, NULL, 0, "the work of the streams of pool \"%s\" cannot be waited for",
                              loch_allocator_get_name(pool->allocator));
    if (pool->waiting || pool->fading) lochi_pool_trim(pool, 0);
    return LOCH_OK;
}

/* Under the lock and with the gate closed. Without room enough nothing happens, and nap->bytes says how much is needed. */
static _Atomic uint64_t sleep_all_drops; /* raised behind a pool's own counter, so who sees it sees that */

/* Contents have gone for good. Memory under other tags than the nap's has stayed. */
static void sleep_note_drop(lochi_pool *pool, const pool_nap *nap)
{
    if (nap->keep.contents != LOCH_SLEEP_DROP) return;
    for (size_t i = 0; i < POOL_DROPS; i++)
        if (!nap->tag || i == nap->tag % POOL_DROPS)
            atomic_fetch_add_explicit(&pool->drops[i], 1, memory_order_release);
    atomic_fetch_add_explicit(&sleep_all_drops, 1, memory_order_release);
}

uint64_t lochi_pool_count_drops(loch_allocator *allocator, loch_tag tag)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    return pool ? atomic_load_explicit(&pool->drops[tag % POOL_DROPS], memory_order_acquire) : 0;
}

uint64_t lochi_pool_count_all_drops(void)
{
    return atomic_load_explicit(&sleep_all_drops, memory_order_acquire);
}

static loch_status sleep_try(lochi_pool *pool, pool_nap *nap, pool_stage *stage, bool *is_done)
{
    size_t chosen = 0;
    loch_status status;
    LOCH_TRY(sleep_check(pool, nap->tag), fail);
    LOCH_TRY(sleep_calm(pool), fail);
    LOCH_TRY(sleep_choose(pool, nap->tag), fail);
    LOCH_TRY(nap_find_ranges(pool, nap), fail);
    if (!lochi_keep_has_room(&nap->keep, nap->bytes)) goto fail; /* with LOCH_OK */
    for (const pool_handle *handle = pool->handles; handle; handle = handle->next)
        chosen += handle->rest == POOL_CHOSEN;
    LOCH_TRY(sleep_stock(pool, chosen), fail);
    for (const pool_handle *handle = pool->handles; handle; handle = handle->next)
        if (handle->rest == POOL_CHOSEN) lochi_pool_show(pool, handle->at, handle->bytes);
    LOCH_TRY(nap_save(nap, stage), fail);
    LOCH_TRY(sleep_lay_down(pool, nap), fail);
    nap->next = pool->naps;
    pool->naps = nap;
    pool->is_asleep |= !nap->tag;
    sleep_hide_blocks(pool);
    sleep_paint(pool);
    sleep_note_drop(pool, nap);
    *is_done = true;
    return LOCH_OK;
fail:
    sleep_unchoose(pool);
    sleep_paint(pool);
    return status;
}

/* The gate stays closed from the first sleep to the wake. */
static loch_status sleep_locked(lochi_pool *pool, pool_nap *nap, pool_stage *stage, size_t *released, bool *is_done)
{
    lochi_lock_take(&pool->lock);
    lochi_pool_stop(pool);
    const size_t before = pool->reserved;
    const bool is_first = !pool->naps;
    const loch_status status = sleep_try(pool, nap, stage, is_done);
    *released += before - pool->reserved;
    if (!*is_done || !is_first) lochi_pool_go(pool);
    lochi_lock_drop(&pool->lock);
    return status;
}

/* What was queued before a failure may still write to memory that is about to go. */
static void sleep_settle(const lochi_pool *pool)
{
    const loch_error saved = lochi_error_save();
    (void)!loch_stream_sync(pool->default_stream); /* what cannot be waited for does not run */
    lochi_error_restore(&saved);
}

static loch_status sleep_read_options(const lochi_pool *pool, const loch_sleep_options *given, loch_sleep_options *out)
{
    *out = (loch_sleep_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of sleep options", given, out, sizeof *out));
    if ((unsigned)out->contents > LOCH_SLEEP_FILE || out->tag >= LOCH_TAG_COUNT_MAX)
        return LOCH_FAIL(INVALID, "sleep options hold values that are not known");
    const bool has_pieces = out->contents == LOCH_SLEEP_PINNED || out->contents == LOCH_SLEEP_HOST;
    if ((out->allocator && !has_pieces) || (out->path && out->contents != LOCH_SLEEP_FILE))
        return LOCH_FAIL(INVALID, "contents that are %s need no %s",
                         out->contents == LOCH_SLEEP_FILE ? "in a file"
                         : has_pieces                     ? "in host memory"
                                                          : "dropped",
                         out->path ? "path" : "allocator");
    if (out->allocator && !(loch_allocator_get_attributes(out->allocator).bits & LOCH_ATTRIBUTE_ON_HOST))
        return LOCH_FAIL(INVALID, "\"%s\" hands out no host memory", loch_allocator_get_name(out->allocator));
    if (!pool->is_virtual)
        return LOCH_FAIL(UNSUPPORTED, "memory of \"%s\" cannot go and keep its addresses: it is not virtual",
                         loch_allocator_get_name(pool->allocator));
    return LOCH_OK;
}

loch_status loch_pool_sleep(loch_allocator *allocator, const loch_sleep_options *options, size_t *released)
{
    if (released) *released = 0;
    lochi_pool *pool = lochi_pool_of(allocator);
    if (!pool) return LOCH_FAIL(INVALID, "\"%s\" is no pool", loch_allocator_get_name(allocator));
    loch_sleep_options read;
    LOCH_TRY_RETURN(sleep_read_options(pool, options, &read));
    pool_nap *nap = lochi_zalloc(sizeof *nap);
    if (!nap) return LOCH_FAIL(HOST_MEMORY, "no host memory for a pool's sleep");
    nap->tag = read.tag;
    pool_stage stage = {0};
    size_t gone = 0;
    bool is_done = false;
    loch_status status = lochi_keep_open(&nap->keep, pool->device, &read);
    if (status == LOCH_OK && nap->keep.allocator && lochi_pool_of(nap->keep.allocator) == pool)
        status = LOCH_FAIL(INVALID, "the pool \"%s\" cannot keep its contents in itself",
                           loch_allocator_get_name(allocator));
    if (status == LOCH_OK && nap->keep.is_staged) status = lochi_stage_open(&stage, pool->device);
    nap->keep.is_wiped = stage.is_wiped = pool->is_wiped;
    for (int i = 0; status == LOCH_OK && !is_done && i < SLEEP_TRIES; i++) {
        status = lochi_keep_grow(&nap->keep, nap->bytes);
        if (status == LOCH_OK) status = sleep_locked(pool, nap, &stage, &gone, &is_done);
    }
    if (status == LOCH_OK && !is_done)
        status = LOCH_FAIL(BUSY, "others fill the pool \"%s\" faster than it can be saved",
                           loch_allocator_get_name(allocator));
    if (status != LOCH_OK) {
        sleep_settle(pool);
        nap_destroy(nap);
    }
    lochi_stage_close(&stage);
    if (released && status == LOCH_OK) *released = gone;
    return status;
}

/* --- waking --- */

/* Contents that are copied back in one go. */
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

/* Adds a part to what is copied back, or begins anew with it. */
static loch_status wake_add(wake_run *run, const sleep_part *part, pool_stage *stage)
{
    pool_nap *nap = part->handle->nap;
    const size_t offset = nap_find_offset(nap, part->start);
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

/* Brings memory back under all blocks that are still out, and restores what is in them: the device copies while the host
 * takes the next handles. */
static loch_status wake_restore(lochi_pool *pool, pool_stage *stage, size_t *restored)
{
    wake_run run = {0};
    sleep_part part;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        if (lochi_pool_state(block) == POOL_WAITING) continue;
        for (uintptr_t at = block->start; sleep_next_part(pool, block, POOL_WANTED, &at, &part);) {
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

/* Everything sleeps again. */
static void wake_undo(lochi_pool *pool)
{
    const loch_error saved = lochi_error_save();
    sleep_settle(pool);
    for (pool_handle *handle = pool->handles, *next; handle; handle = next) {
        next = handle->next;
        if (handle->rest != POOL_WANTED) continue;
        handle->rest = POOL_ASLEEP;
        if (lochi_pool_lay_down(pool, handle) != LOCH_OK) /* it stays mapped, and is filled by the next wake */
            LOCHI_LOG(WARNING, "memory stays under what sleeps: %s", loch_error_get()->sentence);
    }
    for (pool_handle *handle = pool->asleep; handle; handle = handle->next)
        handle->rest = POOL_ASLEEP;
    lochi_error_restore(&saved);
}

/* Marks what still has a block, and makes sure that the rest can be forgotten. */
static loch_status wake_prepare(lochi_pool *pool)
{
    size_t forgotten = 0;
    lochi_pool_collect(pool);
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));)
        sleep_set_rest(pool, block, sleep_live_bytes(block), POOL_ASLEEP, POOL_WANTED);
    for (pool_handle *handle = pool->handles; handle; handle = handle->next) /* what an earlier wake left mapped */
        if (handle->rest == POOL_ASLEEP) handle->rest = POOL_WANTED;
    for (const pool_handle *handle = pool->asleep; handle; handle = handle->next)
        forgotten += handle->rest == POOL_ASLEEP;
    return sleep_stock(pool, forgotten);
}

/* The start of a dormant block becomes free, or bare where its handle is forgotten; what is behind stays dormant. */
static pool_block *wake_release_part(lochi_pool *pool, pool_block *block)
{
    const uintptr_t end = block->start + block->bytes;
    const bool is_bare = sleep_is_asleep(sleep_handle_at(pool, block->start));
    uintptr_t at = block->start;
    while (at < end && sleep_is_asleep(sleep_handle_at(pool, at)) == is_bare)
        at = sleep_end_of(pool, sleep_handle_at(pool, at), at);
    if (at < end) lochi_pool_split(pool, block, at);
    pool->dormant_bytes -= block->bytes;
    if (is_bare) return lochi_pool_make_bare(pool, block);
    lochi_pool_hide(pool, block->start, block->bytes);
    return lochi_pool_make_free(pool, block, 0);
}

/* Nothing fails from here on. Those of pool->asleep have no block any more. */
static void wake_finish(lochi_pool *pool)
{
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
    sleep_paint(pool);
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

/* Under the lock. *done is what was kept, for the caller to let go of. */
static loch_status wake_try(lochi_pool *pool, pool_stage *stage, size_t *restored, pool_nap **done)
{
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

/* With a stage where one is needed: *needs_stage says that it is missing, and nothing has happened. */
static loch_status wake_locked(lochi_pool *pool, pool_stage *stage, size_t *restored, bool *needs_stage)
{
    pool_nap *done = NULL;
    loch_status status = LOCH_OK;
    lochi_lock_take(&pool->lock);
    *needs_stage = wake_needs_stage(pool) && !stage->memory;
    if (!*needs_stage && pool->naps) status = wake_try(pool, stage, restored, &done);
    lochi_lock_drop(&pool->lock);
    nap_destroy_all(done);
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

/* What the rest of the pool and others do not use goes back; says how much. */
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

loch_status loch_pool_wake(loch_allocator *allocator, size_t *restored)
{
    size_t bytes = 0;
    if (restored) *restored = 0;
    lochi_pool *pool = lochi_pool_of(allocator);
    if (!pool) return LOCH_FAIL(INVALID, "\"%s\" is no pool", loch_allocator_get_name(allocator));
    loch_status status = wake_once(pool, &bytes);
    const bool is_short = status == LOCH_E_DEVICE_MEMORY || status == LOCH_E_LIMIT;
    if (is_short && wake_make_room(pool, status)) status = wake_once(pool, &bytes);
    if (restored) *restored = bytes;
    return status;
}
