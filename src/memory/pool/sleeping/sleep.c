/* SPDX-License-Identifier: MIT */
/* Puts pools to sleep: handles give their memory back while live blocks keep their addresses.
 *
 * A sleep chooses handles, saves their contents and unmaps them. Their records stay, and their cells still point to
 * them. So blocks are found, walked and freed as before; free memory in sleeping handles is dormant. The gate is
 * closed until the wake (wake.c), because the fast path would hand out freed memory that is asleep.
 *
 * The chosen handles are closed first, as if they were asleep: no other thread gets memory in them, and blocks that are
 * freed there become dormant. Then the contents are saved and the handles unmapped outside the pool's lock, so other
 * threads use memory that stays awake. The supply lock is held from the choice to the end. If a step fails, the handles
 * are opened again, with records that were set aside for that.
 *
 * The room for the contents comes from other allocators, whose locks are taken before this pool's lock. So a sleep
 * first measures how much it needs, then allocates the room without the lock, and then measures again. */
#include "base/fail.h"
#include "base/heap.h"
#include "base/logging.h"
#include "base/options.h"
#include "kit/sized.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/front/front.h"
#include "memory/pool/supply/supply.h"
#include "memory/pool/trim/trim.h"
#include "memory/pool/sleeping/keep.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/moving/moving.h"
#include "memory/pool/sleeping/nap.h"
#include "memory/pool/state/state.h"
#include "memory/pool/pool.h"
#include "memory/pool/sleeping/rest.h"
#include "memory/recorder/recorder.h"

#define SLEEP_TRIES 16 /* attempts, if the pool fills while the room is allocated */
#define SLEEP_NAN 0xff /* a byte that makes NaN in every type of numbers with a fraction, and -1 in integers */

/* --- choosing --- */

static bool sleep_slab_has_only(const pool_slab *slab, loch_tag tag)
{
    for (uint32_t i = 0; i < slab->count; i++) {
        const uint32_t word = atomic_load_explicit(&slab->words[i], memory_order_relaxed);
        if (word & POOL_WORD_LIVE && lochi_pool_word_tag(word) != tag) return false;
    }
    return true;
}

static bool sleep_is_of(const pool_block *block, loch_tag tag)
{
    const pool_state state = lochi_pool_state(block);
    if (!tag) return true;
    return state == POOL_SLAB ? sleep_slab_has_only(block->slab, tag) : lochi_pool_is_out(state) && block->tag == tag;
}

/* Checks that a block can sleep. Returns why it cannot. */
static loch_status sleep_check_block(const pool_block *block)
{
    if (lochi_pool_is_range(block))
        return LOCH_FAIL(BUSY, "the block at %p is the range of a child pool: end the child before its parent sleeps",
                         (void *)block->start);
    if (lochi_pool_state(block) == POOL_WAITING)
        return LOCH_FAIL(BUSY, "streams still use the block that was freed at %p", (void *)block->start);
    return LOCH_OK;
}

/* Chooses the handles that sleep: those with a block of the tag and no block of another tag. Free memory of captures
 * has no tag: graphs of other tags may use it. */
static loch_status sleep_choose(lochi_pool *pool, loch_tag tag)
{
    for (pool_handle *handle = pool->handles; handle && !tag; handle = handle->next)
        if (handle->rest == POOL_AWAKE) handle->rest = POOL_CHOSEN;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        const size_t live = lochi_rest_count_live(block);
        if (!live || !sleep_is_of(block, tag)) continue;
        LOCH_TRY_RETURN(sleep_check_block(block));
        if (tag) lochi_rest_set(pool, block, live, POOL_AWAKE, POOL_CHOSEN);
    }
    for (pool_block *block = NULL; tag && (block = lochi_pool_next_block(pool, block));) {
        const size_t kept = lochi_rest_count_kept(block);
        if (kept && !sleep_is_of(block, tag)) lochi_rest_set(pool, block, kept, POOL_CHOSEN, POOL_AWAKE);
    }
    for (const pool_handle *handle = pool->handles; handle; handle = handle->next)
        if (handle->rest == POOL_CHOSEN && handle->mappings > 1)
            return LOCH_FAIL(BUSY, "an old address of the memory at %p is still in use", (void *)handle->at);
    return LOCH_OK;
}

static void sleep_unchoose(lochi_pool *pool)
{
    for (pool_handle *handle = pool->handles; handle; handle = handle->next)
        if (handle->rest == POOL_CHOSEN) handle->rest = POOL_AWAKE;
}

/* --- unmapping --- */

/* Cuts the sleeping part off the start of a free block, or the part that is awake. Returns that part. */
static pool_block *sleep_cut_free(lochi_pool *pool, pool_block *block)
{
    const uintptr_t end = block->start + block->bytes;
    const bool is_asleep = lochi_pool_is_asleep(lochi_pool_find_handle(pool, block->start));
    uintptr_t at = block->start;
    while (at < end && lochi_pool_is_asleep(lochi_pool_find_handle(pool, at)) == is_asleep)
        at = lochi_pool_find_end(pool, lochi_pool_find_handle(pool, at), at);
    lochi_pool_unbin(pool, block);
    if (at < end) lochi_pool_rebin(pool, lochi_pool_split(pool, block, at));
    if (is_asleep) return lochi_pool_make_dormant(pool, block);
    lochi_pool_rebin(pool, block);
    return block;
}

/* Makes free blocks of sleeping handles dormant, and closes their slabs. */
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

/* Unmaps the handles of a nap. A handle that cannot be unmapped keeps its memory until the wake. Fails only if none
 * could be unmapped. */
static loch_status sleep_lay_down(lochi_pool *pool, const pool_nap *nap)
{
    loch_status status = LOCH_OK;
    bool has_any = false;
    for (pool_handle *handle = pool->handles, *next; handle; handle = next) {
        next = handle->next;
        if (handle->nap != nap) continue;
        const loch_status laid = lochi_pool_lay_down(pool, handle);
        if (laid == LOCH_OK)
            has_any = true;
        else
            status = laid;
    }
    if (has_any && status != LOCH_OK)
        LOCHI_LOG(WARNING, "a pool is asleep, but part of its memory did not go back: %s", loch_error_get()->sentence);
    return has_any ? LOCH_OK : status;
}

/* Closes the chosen handles for other threads: they count as asleep, though they still have their memory. */
static void sleep_close(lochi_pool *pool, pool_nap *nap)
{
    for (pool_handle *handle = pool->handles; handle; handle = handle->next) {
        if (handle->rest != POOL_CHOSEN) continue;
        handle->rest = POOL_ASLEEP;
        handle->nap = nap;
        lochi_pool_show(pool, handle->at, handle->bytes);
    }
    nap->next = pool->sleep.naps;
    pool->sleep.naps = nap;
    pool->sleep.is_asleep |= !nap->tag;
    sleep_hide_blocks(pool);
}

/* Undoes sleep_close. Uses the records that were set aside. */
static void sleep_reopen(lochi_pool *pool, const pool_nap *nap)
{
    pool->sleep.naps = nap->next;
    if (!nap->tag) pool->sleep.is_asleep = false;
    for (pool_handle *handle = pool->handles; handle; handle = handle->next) {
        if (handle->nap != nap) continue;
        handle->rest = POOL_AWAKE;
        handle->nap = NULL;
    }
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        if (lochi_pool_state(block) == POOL_DORMANT) block = lochi_rest_release(pool, block, false);
        if (lochi_pool_state(block) == POOL_SLAB && !lochi_pool_sleeps_at(pool, block->start, block->bytes))
            lochi_pool_slab_wake(block->slab);
    }
}

/* Returns E_BUSY if something that is to sleep is asleep already. */
static loch_status sleep_check(const lochi_pool *pool, loch_tag tag)
{
    for (const pool_nap *nap = pool->sleep.naps; nap; nap = nap->next)
        if (!nap->tag || nap->tag == tag)
            return LOCH_FAIL(BUSY, "pool \"%s\" is asleep already%s", loch_allocator_get_name(pool->allocator),
                             nap->tag ? " for this tag" : "");
    return LOCH_OK;
}

/* Waits until no stream uses the pool. A graph may run on any stream of the device. */
static loch_status sleep_wait(lochi_pool *pool)
{
    bool has_graphs = false;
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next)
        has_graphs |= lane->capture != 0;
    loch_status status = has_graphs ? lochi_pool_wait_for_device(pool) : LOCH_OK;
    if (status == LOCH_OK) status = lochi_pool_wait_for_all(pool);
    if (status == LOCH_OK) return LOCH_OK; /* the error record may describe an older failure */
    return loch_error_set(status, NULL, 0, "the streams of pool \"%s\" cannot be waited for",
                          loch_allocator_get_name(pool->allocator));
}

/* Mends torn blocks, gives free memory back, and waits until no stream uses the pool. */
static loch_status sleep_calm(lochi_pool *pool)
{
    loch_status status;
    pool_lane *lane = lochi_pool_lane(pool, pool->default_stream, &status);
    if (!lane) return status;
    LOCH_TRY_RETURN(lochi_pool_mend_all(pool, lane));
    lochi_pool_trim(pool, 0);
    LOCH_TRY_RETURN(sleep_wait(pool));
    if (pool->waiting || pool->stale.first) lochi_pool_trim(pool, 0);
    return LOCH_OK;
}

/* --- contents that were dropped --- */

static _Atomic uint64_t
    sleep_all_drops; /* raised after a pool's own counter (release): a reader that sees this one sees that one */
/* Counts a sleep that dropped contents. Memory of other tags than the nap's was not dropped. */
static void sleep_note_drop(lochi_pool *pool, const pool_nap *nap)
{
    if (nap->keep.contents != LOCH_SLEEP_DROP) return;
    for (size_t i = 0; i < POOL_DROPS; i++)
        if (!nap->tag || i == nap->tag % POOL_DROPS)
            atomic_fetch_add_explicit(&pool->sleep.drops[i], 1, memory_order_release);
    atomic_fetch_add_explicit(&sleep_all_drops, 1, memory_order_release);
}

uint64_t lochi_pool_count_drops(loch_allocator *allocator, loch_tag tag)
{
    lochi_pool *pool = lochi_pool_of(allocator);
    return pool ? atomic_load_explicit(&pool->sleep.drops[tag % POOL_DROPS], memory_order_acquire) : 0;
}

uint64_t lochi_pool_count_all_drops(void)
{
    return atomic_load_explicit(&sleep_all_drops, memory_order_acquire);
}

/* --- sleeping --- */

/* Waits until no stream uses the pool, and chooses the handles that sleep. */
static loch_status sleep_prepare(lochi_pool *pool, pool_nap *nap)
{
    LOCH_TRY_RETURN(sleep_check(pool, nap->tag));
    LOCH_TRY_RETURN(sleep_calm(pool));
    lochi_pool_flush_threads(pool); /* again: other threads may have cached blocks during the waits */
    LOCH_TRY_RETURN(sleep_choose(pool, nap->tag));
    return lochi_nap_find_ranges(pool, nap);
}

/* Saves the contents of closed handles, and unmaps the handles. The contents move outside the lock, except while a tool
 * checks accesses: a free by another thread would hide memory from the copies. */
static loch_status sleep_save(lochi_pool *pool, pool_nap *nap, pool_stage *stage)
{
    if (pool->is_shared) /* other threads may have freed memory there since the last wait */
        LOCH_TRY_RETURN(sleep_wait(pool));
    if (!pool->policy.checker) lochi_pool_go_outside(pool);
    const loch_status status = lochi_nap_save(nap, stage);
    if (!pool->policy.checker) lochi_pool_come_back(pool);
    return status == LOCH_OK ? sleep_lay_down(pool, nap) : status;
}

/* Sleeps, with the gate closed. If there is not enough room, nothing happens and nap->bytes is the room needed. */
static loch_status sleep_try(lochi_pool *pool, pool_nap *nap, pool_stage *stage, bool *is_done)
{
    lochi_pool_assert_both(pool);
    size_t chosen = 0;
    pool_block *aside;
    loch_status status;
    LOCH_TRY(sleep_prepare(pool, nap), fail);
    if (!lochi_keep_has_room(&nap->keep, nap->bytes)) goto fail; /* with LOCH_OK */
    for (const pool_handle *handle = pool->handles; handle; handle = handle->next)
        chosen += handle->rest == POOL_CHOSEN;
    LOCH_TRY(lochi_rest_set_aside(pool, chosen, &aside), fail);
    status = lochi_rest_stock(pool, chosen);
    if (status == LOCH_OK) {
        sleep_close(pool, nap);
        status = sleep_save(pool, nap, stage);
        *is_done = status == LOCH_OK;
        if (!*is_done) lochi_rest_settle(pool);
    }
    lochi_rest_put_aside_back(pool, aside);
    if (*is_done)
        sleep_note_drop(pool, nap);
    else if (pool->sleep.naps == nap)
        sleep_reopen(pool, nap);
fail:
    sleep_unchoose(pool);
    lochi_rest_paint(pool);
    return status;
}

/* Sleeps, with the lock taken. The gate stays closed from the first sleep to the wake. */
static loch_status sleep_locked(lochi_pool *pool, pool_nap *nap, pool_stage *stage, size_t *released, bool *is_done)
{
    lochi_pool_take_locks(pool);
    lochi_pool_stop(pool);
    const size_t before = pool->reserved;
    const bool is_first = !pool->sleep.naps;
    const loch_status status = sleep_try(pool, nap, stage, is_done);
    *released += before - pool->reserved;
    if (!*is_done || !is_first) lochi_pool_go(pool);
    lochi_pool_drop_locks(pool);
    return status;
}

static loch_status sleep_read_options(const lochi_pool *pool, const loch_sleep_options *given, loch_sleep_options *out)
{
    *out = (loch_sleep_options){.size = sizeof *out};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of sleep options", given, out, sizeof *out));
    if ((unsigned)out->contents > LOCH_SLEEP_DROP) return LOCH_FAIL(INVALID, "the sleep options have unknown contents");
    if (out->tag && !*loch_tag_name(out->tag)) return LOCH_FAIL(INVALID, "there is no tag with number %u", out->tag);
    const bool has_pieces = out->contents == LOCH_SLEEP_PINNED || out->contents == LOCH_SLEEP_HOST;
    if ((out->allocator && !has_pieces) || (out->path && out->contents != LOCH_SLEEP_FILE))
        return LOCH_FAIL(INVALID, "contents that are %s need no %s",
                         out->contents == LOCH_SLEEP_FILE ? "in a file"
                         : has_pieces                     ? "in host memory"
                                                          : "dropped",
                         out->path ? "path" : "allocator");
    if (out->allocator && !(loch_allocator_get_attributes(out->allocator).bits & LOCH_ATTRIBUTE_ON_HOST))
        return LOCH_FAIL(INVALID, "\"%s\" does not hand out host memory", loch_allocator_get_name(out->allocator));
    if (!pool->policy.is_virtual)
        return LOCH_FAIL(UNSUPPORTED,
                         "pool \"%s\" has no virtual memory: it cannot give memory back and keep the addresses",
                         loch_allocator_get_name(pool->allocator));
    return LOCH_OK;
}

loch_status loch_pool_sleep(loch_allocator *pool, const loch_sleep_options *options, size_t *released)
{
    if (released) *released = 0;
    lochi_pool *self = lochi_pool_of(pool);
    if (!self) return LOCH_FAIL(INVALID, "\"%s\" is not a pool", loch_allocator_get_name(pool));
    loch_sleep_options read;
    bool is_nan;
    LOCH_TRY_RETURN(sleep_read_options(self, options, &read));
    LOCH_TRY_RETURN(lochi_option_switch("sleep_nan", &is_nan));
    pool_nap *nap = lochi_zalloc(sizeof *nap);
    if (!nap) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a sleep");
    nap->tag = read.tag;
    nap->dropped = is_nan ? SLEEP_NAN : 0;
    pool_stage stage = {0};
    size_t gone = 0;
    bool is_done = false;
    loch_status status = lochi_keep_open(&nap->keep, self->device, &read);
    if (status == LOCH_OK && nap->keep.allocator && lochi_pool_of(nap->keep.allocator) == self)
        status = LOCH_FAIL(INVALID, "pool \"%s\" cannot keep its contents in itself", loch_allocator_get_name(pool));
    if (status == LOCH_OK && nap->keep.is_staged) status = lochi_stage_open(&stage, self->device);
    nap->keep.is_wiped = stage.is_wiped = self->policy.is_wiped;
    for (int i = 0; status == LOCH_OK && !is_done && i < SLEEP_TRIES; i++) {
        status = lochi_keep_grow(&nap->keep, nap->bytes);
        if (status == LOCH_OK) status = sleep_locked(self, nap, &stage, &gone, &is_done);
    }
    if (status == LOCH_OK && !is_done)
        status = LOCH_FAIL(BUSY, "other threads fill pool \"%s\" faster than it can be saved",
                           loch_allocator_get_name(pool));
    if (status != LOCH_OK) lochi_nap_destroy(nap);
    lochi_stage_close(&stage);
    if (status == LOCH_OK) lochi_recorder_note_sleep(lochi_recorder_of(self->allocator), gone);
    if (released && status == LOCH_OK) *released = gone;
    return status;
}
