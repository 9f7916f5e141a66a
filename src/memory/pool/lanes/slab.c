/* SPDX-License-Identifier: MIT */
/* Small blocks: slabs of one class each, cut from large blocks. Each small block has one word of state on the host.
 * Free small blocks are chained through their words. The caller finds the block for a slab: this part never
 * allocates device memory. */
#include "memory/pool/lanes/slab.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/lanes/block.h"
#include "memory/pool/heap/heap.h"

#define SLAB_OBJECTS 8 /* objects in a slab, at least */
#define SLAB_BYTES_MIN ((size_t)16 << 10)
#define SLAB_BYTES_MAX ((size_t)64 << 10)
#define SLAB_RANGE_PART 32
#define SLAB_EMPTY_MAX 4 /* empty slabs that a lane keeps */

/* --- classes --- */

/* Returns the next class above `bytes`: steps of one unit at first, then of an eighth of a power of two. Steps are
 * powers of two, so the class for a multiple of an alignment is a multiple of the alignment too, and its blocks are
 * aligned: slabs start on pages. */
static size_t slab_next_class(const lochi_pool *pool, size_t bytes)
{
    const size_t power = (size_t)1 << (63 - __builtin_clzll(bytes));
    const size_t step = power / 8 > pool->unit ? power / 8 : pool->unit;
    return bytes + step;
}

/* Chooses the bytes of a slab. In a child's range a slab is a small part of the range. */
static size_t slab_choose_bytes(const lochi_pool *pool, size_t object_bytes)
{
    size_t bytes = SLAB_BYTES_MIN;
    while (bytes < SLAB_OBJECTS * object_bytes && bytes < SLAB_BYTES_MAX)
        bytes *= 2;
    while (pool->range && bytes > POOL_PAGE && bytes > pool->limit / SLAB_RANGE_PART)
        bytes /= 2;
    return bytes;
}

void lochi_pool_lay_out_classes(lochi_pool *pool)
{
    size_t step = 0; /* index into the table: sizes above step * 16, up to (step + 1) * 16 */
    for (size_t bytes = pool->unit; bytes <= POOL_SMALL_MAX; bytes = slab_next_class(pool, bytes)) {
        const uint32_t class = pool->classes++;
        pool->class_bytes[class] = (uint32_t)bytes;
        pool->slab_bytes[class] = (uint32_t)slab_choose_bytes(pool, bytes);
        for (; (step + 1) << POOL_STEP_SHIFT <= bytes; step++)
            pool->class_of[step] = (uint8_t) class;
    }
}

/* --- slabs --- */

/* Enters a slab with a free object in the list for its state. Empty slabs are apart: they are taken last, so that
 * blocks stay together in few slabs, and a trim finds them without a walk. */
static void slab_enlist(pool_slab *slab)
{
    pool_lane *lane = slab->lane;
    pool_slab **list = slab->free_count == slab->count ? &lane->empty : &lane->partial[slab->class];
    slab->next = *list;
    slab->link = list;
    if (*list) (*list)->link = &slab->next;
    *list = slab;
}

static void slab_unlist(pool_slab *slab)
{
    *slab->link = slab->next;
    if (slab->next) slab->next->link = slab->link;
}

pool_slab *lochi_pool_slab_take_record(lochi_pool *pool, uint32_t class)
{
    lochi_lock_assert_held(&pool->lock);
    pool_slab *slab = pool->spare_slabs[class];
    if (slab) {
        pool->spare_slabs[class] = slab->next;
        return slab;
    }
    const uint32_t count = pool->slab_bytes[class] / pool->class_bytes[class];
    slab = lochi_zalloc_aligned(_Alignof(pool_slab),
                                sizeof *slab + (count + 1) * sizeof slab->words[0]); /* and the word of the rest */
    if (!slab) return NULL;
    slab->class = class;
    slab->object_bytes = pool->class_bytes[class];
    slab->count = count;
    slab->reciprocal = (uint32_t)(((uint64_t)1 << 32) / slab->object_bytes + 1);
    slab->all_next = pool->slabs;
    pool->slabs = slab;
    return slab;
}

void lochi_pool_slab_keep_record(lochi_pool *pool, pool_slab *slab)
{
    lochi_lock_assert_held(&pool->lock);
    slab->next = pool->spare_slabs[slab->class];
    pool->spare_slabs[slab->class] = slab;
}

/* Enters a slab in a list of its lane, and counts it as empty while none of its blocks is in use. */
static void slab_open(pool_slab *slab)
{
    if (slab->free_count) slab_enlist(slab);
    if (slab->free_count == slab->count) slab->lane->empty_slabs++;
}

/* Cuts a block into small blocks. Its pages can be entered. */
static void slab_cut(lochi_pool *pool, pool_slab *slab, pool_lane *lane, pool_block *block)
{
    slab->block = block;
    slab->start = block->start;
    slab->lane = lane;
    slab->free_count = slab->count;
    slab->free_head = POOL_WORD_NONE;
    slab->fresh = 0;
    slab->is_asleep = slab->is_closed = false;
    for (uint32_t i = 0; i < slab->count; i++)
        atomic_store_explicit(&slab->words[i], 0, memory_order_relaxed);
    block->slab = slab;
    lochi_pool_set_state(block, POOL_SLAB);
    for (size_t offset = 0; offset < pool->slab_bytes[slab->class]; offset += POOL_PAGE)
        lochi_pool_enter_page(pool, block->start + offset, (uintptr_t)slab | POOL_IS_SLAB);
}

void lochi_pool_slab_make(lochi_pool *pool, pool_slab *slab, pool_lane *lane, pool_block *block)
{
    lochi_lock_assert_held(&pool->lock);
    slab_cut(pool, slab, lane, block);
    slab_open(slab);
}

bool lochi_pool_small_prepare(pool_slab *slab)
{
    if (!slab->owners) slab->owners = lochi_zalloc(slab->count * sizeof *slab->owners);
    return slab->owners;
}

pool_id *lochi_pool_slab_ids(pool_slab *slab)
{
    pool_id *ids = atomic_load_explicit(&slab->ids, memory_order_relaxed); /* written with the lock held */
    if (ids) return ids;
    ids = lochi_zalloc(slab->count * sizeof *ids);
    atomic_store_explicit(&slab->ids, ids, memory_order_release); /* threads on the fast path see zeros */
    return ids;
}

pool_slab *lochi_pool_slab_make_closed(lochi_pool *pool, pool_lane *lane, uint32_t class, pool_block *block,
                                       loch_status *status)
{
    lochi_lock_assert_held(&pool->lock);
    pool_slab *slab = lochi_pool_slab_take_record(pool, class);
    *status = slab ? lochi_pool_prepare_pages(pool, block->start, pool->slab_bytes[class])
                   : LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a slab");
    if (*status == LOCH_OK && !lochi_pool_small_prepare(slab))
        *status = LOCH_FAIL(HOST_MEMORY, "no host memory for the owners of small blocks");
    if (*status != LOCH_OK) {
        if (slab) lochi_pool_slab_keep_record(pool, slab);
        return NULL;
    }
    slab_cut(pool, slab, lane, block);
    slab->is_closed = true;
    block->lane = lane;
    pool->used += block->bytes;
    if (pool->used - pool->waiting_bytes > pool->peak_used) pool->peak_used = pool->used - pool->waiting_bytes;
    return slab;
}

static void slab_destroy(lochi_pool *pool, pool_slab *slab)
{
    pool_block *block = slab->block;
    slab_unlist(slab);
    slab->lane->empty_slabs--;
    for (size_t offset = 0; offset < pool->slab_bytes[slab->class]; offset += POOL_PAGE)
        lochi_pool_enter_page(pool, block->start + offset, POOL_SLAB_MARK(slab->class, offset >> POOL_PAGE_SHIFT));
    lochi_free(slab->owners); /* the table of ids stays: threads read it without the lock, and all of it is 0 */
    slab->owners = NULL;
    lochi_pool_slab_keep_record(pool, slab);
    block->slab = NULL;
    lochi_pool_put_block(pool, block);
}

/* --- small blocks --- */

/* Counts out an object that the caller has taken off the list of free ones. */
static inline pool_entry slab_hand_out(pool_slab *slab, uint32_t index)
{
    const bool was_empty = slab->free_count-- == slab->count;
    if (!slab->is_closed && (was_empty || !slab->free_count)) {
        slab_unlist(slab);
        slab->lane->empty_slabs -= was_empty;
        if (slab->free_count) slab_enlist(slab);
    }
    return (pool_entry){(void *)(slab->start + (uintptr_t)index * slab->object_bytes), &slab->words[index]};
}

pool_entry lochi_pool_slab_pop(pool_slab *slab)
{
    uint32_t index = slab->free_head;
    if (index != POOL_WORD_NONE)
        slab->free_head = atomic_load_explicit(&slab->words[index], memory_order_relaxed) & POOL_WORD_BYTES;
    else
        index = slab->fresh++;
    return slab_hand_out(slab, index);
}

bool lochi_pool_slab_pick(pool_slab *slab, uint32_t index, pool_entry *out)
{
    for (; slab->fresh <= index; slab->fresh++) { /* objects before this one were never handed out: they are free */
        atomic_store_explicit(&slab->words[slab->fresh], slab->free_head, memory_order_relaxed);
        slab->free_head = slab->fresh;
    }
    uint32_t before = POOL_WORD_NONE, at = slab->free_head;
    while (at != index && at != POOL_WORD_NONE) {
        before = at;
        at = atomic_load_explicit(&slab->words[at], memory_order_relaxed) & POOL_WORD_BYTES;
    }
    if (at == POOL_WORD_NONE) return false;
    const uint32_t next = atomic_load_explicit(&slab->words[index], memory_order_relaxed) & POOL_WORD_BYTES;
    if (before == POOL_WORD_NONE) {
        slab->free_head = next;
    } else {
        const uint32_t seen = atomic_load_explicit(&slab->words[before], memory_order_relaxed) & ~POOL_WORD_BYTES;
        atomic_store_explicit(&slab->words[before], seen | next, memory_order_relaxed);
    }
    *out = slab_hand_out(slab, index);
    return true;
}

bool lochi_pool_slab_end(lochi_pool *pool, pool_slab *slab)
{
    lochi_lock_assert_held(&pool->lock);
    if (slab->free_count < slab->count || slab->is_asleep || slab->is_closed) return false;
    slab_destroy(pool, slab);
    return true;
}

pool_slab *lochi_pool_slab_find(const pool_lane *lane, uint32_t class)
{
    pool_slab *slab = lane->partial[class];
    if (slab) return slab;
    for (slab = lane->empty; slab && slab->class != class;)
        slab = slab->next;
    return slab;
}

size_t lochi_pool_slab_take(pool_lane *lane, uint32_t class, pool_entry *out, size_t count)
{
    size_t taken = 0;
    for (pool_slab *slab; taken < count && (slab = lochi_pool_slab_find(lane, class));) {
        while (taken < count && slab->free_count)
            out[taken++] = lochi_pool_slab_pop(slab);
    }
    return taken;
}

void lochi_pool_slab_give(lochi_pool *pool, pool_slab *slab, pool_word *word)
{
    lochi_lock_assert_held(&pool->lock);
    pool_lane *lane = slab->lane;
    const uint32_t seen = atomic_load_explicit(word, memory_order_relaxed) & POOL_WORD_FREED;
    atomic_store_explicit(word, seen | slab->free_head, memory_order_relaxed);
    slab->free_head = (uint32_t)(word - slab->words);
    const bool is_open = !slab->is_asleep && !slab->is_closed;
    const bool was_full = !slab->free_count++, is_empty = slab->free_count == slab->count;
    if (is_open && (was_full || is_empty)) {
        if (!was_full) slab_unlist(slab);
        slab_enlist(slab);
    }
    if (!is_empty) return;
    if (is_open) {
        lane->empty_slabs++;
    } else { /* a closed slab waits for its last block */
        slab->is_asleep = slab->is_closed = false;
        slab_open(slab);
    }
    if (!is_open || lane->empty_slabs > SLAB_EMPTY_MAX) slab_destroy(pool, slab);
}

void lochi_pool_slab_sleep(pool_slab *slab)
{
    if (slab->is_asleep) return;
    slab->is_asleep = true;
    if (slab->is_closed) return;
    if (slab->free_count) slab_unlist(slab);
    if (slab->free_count == slab->count) slab->lane->empty_slabs--;
}

void lochi_pool_slab_wake(pool_slab *slab)
{
    if (!slab->is_asleep) return;
    slab->is_asleep = false;
    if (!slab->is_closed) slab_open(slab);
}

bool lochi_pool_slab_trim(lochi_pool *pool, pool_lane *lane)
{
    lochi_lock_assert_held(&pool->lock);
    const bool has_any = lane->empty != NULL;
    while (lane->empty)
        slab_destroy(pool, lane->empty);
    return has_any;
}

void lochi_pool_close_slabs(lochi_pool *pool)
{
    while (pool->slabs) {
        pool_slab *slab = pool->slabs;
        pool->slabs = slab->all_next;
        lochi_free(atomic_load_explicit(&slab->ids, memory_order_relaxed));
        lochi_free(slab->owners);
        lochi_free_aligned(slab);
    }
}
