/* SPDX-License-Identifier: MIT */
/* Freezing: packs long-lived blocks together, keeps them in place from then on, and protects them from writes by the
 * host if asked to.
 *
 * Packing. First the pool is compacted, so that free memory lies in whole handles. Then blocks of the tag that share
 * a handle with other blocks are moved into a zone: a block taken like any other, as large as available, and cut up.
 * The rest is compacted again, which may free memory for a larger zone; this takes a few rounds. Blocks whose raw
 * address was handed out are frozen in place. Small blocks (8 KiB and less) that may move go into closed slabs at
 * the front of the zone, which take no other blocks; other small blocks stay in their slabs. Every frozen small
 * block has a mark in its word.
 *
 * A frozen block is an ordinary block with a mark. Plans treat it as fixed. A free removes the mark, and the
 * protection of its whole pages, before it frees the block. */
#include "base/fail.h"
#include "base/logging.h"
#include "kit/sized.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/moving/moving.h"
#include "memory/pool/front/front.h"
#include "memory/pool/trim/trim.h"
#include "memory/pool/serve/serve.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"
#include "memory/pool/pool.h"
#include "memory/pool/limits/limits.h"
#include <string.h>

#define FREEZE_ROUNDS 4

/* --- which blocks --- */

static bool freeze_is_of(const pool_block *block, loch_tag tag)
{
    const pool_state state = lochi_pool_state(block);
    if ((state != POOL_USED && state != POOL_SPECIAL) || lochi_pool_is_range(block)) return false;
    return !tag || block->tag == tag;
}

/* Tells whether a block keeps a handle from holding blocks of one tag only. */
static bool freeze_is_other(const pool_block *block, loch_tag tag)
{
    switch (lochi_pool_state(block)) {
    case POOL_FREE:
    case POOL_UNMAPPED:
    case POOL_STALE:
    case POOL_DORMANT: return false;
    case POOL_SLAB: return !block->slab->is_closed;
    default: return !freeze_is_of(block, tag) && !block->frozen;
    }
}

/* Tells whether a block shares its first or last handle with blocks of other tags. */
static bool freeze_is_mixed(const lochi_pool *pool, const pool_block *block, loch_tag tag)
{
    const pool_handle *first = lochi_pool_find_cell(pool, block->start)->handle;
    const pool_handle *last = lochi_pool_find_cell(pool, block->start + block->bytes - 1)->handle;
    for (const pool_block *near = block->before; near && near->start + near->bytes > first->at; near = near->before)
        if (freeze_is_other(near, tag)) return true;
    for (const pool_block *near = block->behind; near && near->start < last->at + last->bytes; near = near->behind)
        if (freeze_is_other(near, tag)) return true;
    return false;
}

static bool freeze_is_to_move(const lochi_pool *pool, const pool_block *block, loch_tag tag)
{
    return freeze_is_of(block, tag) && lochi_pool_is_movable(pool, block) && freeze_is_mixed(pool, block, tag);
}

/* --- small blocks --- */

/* Tells whether a word is that of a live small block of the tag whose frozen mark equals `is_frozen`. */
static bool freeze_is_small(uint32_t word, loch_tag tag, bool is_frozen)
{
    if (!(word & POOL_WORD_LIVE) || !(word & POOL_WORD_FROZEN) != !is_frozen) return false;
    return !tag || lochi_pool_word_tag(word) == tag;
}

/* Finds the next small block of a slab, from `*index` on, that has to move; NULL at the end. */
static pool_word *freeze_next_small(const lochi_pool *pool, pool_slab *slab, loch_tag tag, uint32_t *index)
{
    for (; *index < slab->count; (*index)++) {
        pool_word *word = &slab->words[*index];
        if (freeze_is_small(atomic_load_explicit(word, memory_order_relaxed), tag, false) &&
            lochi_pool_small_is_movable(pool, slab, word))
            return word;
    }
    return NULL;
}

/* Returns how many small blocks of a slab have to move. */
static uint32_t freeze_count_small(const lochi_pool *pool, const pool_block *block, loch_tag tag)
{
    uint32_t count = 0;
    if (lochi_pool_state(block) != POOL_SLAB) return 0;
    for (uint32_t index = 0; freeze_next_small(pool, block->slab, tag, &index); index++)
        count++;
    return count;
}

/* Sets or removes the frozen mark of the small blocks of a slab, and adds them to the figures. The gate is closed,
 * or the blocks already have the mark: so none is freed on the fast path meanwhile. */
static void freeze_mark_small(const pool_block *block, loch_tag tag, bool is_frozen, size_t *blocks, size_t *bytes)
{
    if (lochi_pool_state(block) != POOL_SLAB) return;
    for (uint32_t i = 0; i < block->slab->count; i++) {
        pool_word *word = &block->slab->words[i];
        const uint32_t seen = atomic_load_explicit(word, memory_order_relaxed);
        if (!freeze_is_small(seen, tag, !is_frozen)) continue;
        atomic_store_explicit(word, seen ^ POOL_WORD_FROZEN, memory_order_relaxed);
        ++*blocks;
        *bytes += seen & POOL_WORD_BYTES;
    }
}

/* Marks a block as frozen by the current freeze. */
static void freeze_mark(const lochi_pool *pool, pool_block *block, loch_freeze_report *report)
{
    block->frozen = pool->moving.freezes;
    lochi_pool_set_state(block, POOL_SPECIAL); /* a free takes the slow path, which removes the mark */
    report->blocks++;
    report->bytes += lochi_pool_requested(block);
}

/* --- packing --- */

/* Takes one piece of memory of at least `least` and at most `most` bytes, in no list; NULL for none. */
static pool_block *freeze_take_zone(lochi_pool *pool, pool_lane *lane, size_t most, size_t least)
{
    const size_t cell = pool->cell_bytes;
    const loch_error saved = lochi_error_save();
    pool_block *zone = NULL;
    for (size_t bytes = most; !zone && bytes >= least; bytes /= 2) {
        const pool_want want = {(bytes + cell - 1) / cell * cell, cell, lane, 1, 0};
        loch_status status = LOCH_OK;
        zone = lochi_pool_climb(pool, &want, POOL_TO_NEW_MEMORY, &status);
    }
    lochi_error_restore(&saved);
    return zone;
}

/* Cuts a block off the front of a zone. `*zone` becomes the rest, or NULL if nothing is left. */
static loch_status freeze_cut(lochi_pool *pool, pool_block **zone, size_t bytes, pool_block **out)
{
    pool_block *front = *zone;
    if (!lochi_pool_stock_records(pool, 1)) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of a block");
    lochi_pool_set_state(front, POOL_SPECIAL); /* does not merge with neighbours */
    *zone = front->bytes > bytes ? lochi_pool_split(pool, front, front->start + bytes) : NULL;
    *out = front;
    return LOCH_OK;
}

/* Returns the bytes that all blocks to be moved fill, and sets the smallest zone that is useful. Slabs of several
 * streams may need a second zone. */
static size_t freeze_measure(const lochi_pool *pool, loch_tag tag, size_t *least)
{
    size_t most = 0;
    uint64_t classes = 0;
    *least = SIZE_MAX;
    for (const pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        const uint32_t count = freeze_count_small(pool, block, tag);
        size_t bytes = 0;
        if (count) {
            const uint64_t class = (uint64_t)1 << block->slab->class;
            bytes = pool->slab_bytes[block->slab->class];
            most += (size_t)count * block->slab->object_bytes + (classes & class ? 0 : bytes);
            classes |= class;
        } else if (freeze_is_to_move(pool, block, tag)) {
            bytes = block->bytes;
            most += bytes;
        }
        if (bytes && bytes < *least) *least = bytes;
    }
    return most;
}

/* Finds a slab for a small block that moves: one made by this gathering, or a new one cut from the front of the
 * zone. Returns NULL with LOCH_OK if there is no room. */
static pool_slab *freeze_find_slab(lochi_pool *pool, pool_lane *lane, const pool_slab *from, pool_slab **made,
                                   pool_block **zone, loch_status *status)
{
    const size_t bytes = pool->slab_bytes[from->class];
    for (pool_slab *slab = *made; slab; slab = slab->next)
        if (slab->class == from->class && slab->lane == from->lane && slab->free_count) return slab;
    pool_block *block;
    if (!*zone || (*zone)->bytes < bytes) return NULL;
    *status = freeze_cut(pool, zone, bytes, &block);
    if (*status != LOCH_OK) return NULL;
    *status = lochi_pool_wait_on_device(pool, lane, block->lane, lochi_pool_epoch(block));
    pool_slab *slab =
        *status == LOCH_OK ? lochi_pool_slab_make_closed(pool, from->lane, from->class, block, status) : NULL;
    if (!slab) {
        lochi_pool_make_free(pool, block, lochi_pool_epoch(block));
        return NULL;
    }
    slab->next = *made; /* a closed slab is in this list only */
    *made = slab;
    return slab;
}

/* Moves the small blocks of one slab. The slab may end with the last of them. */
static loch_status freeze_gather_slab(lochi_pool *pool, pool_lane *lane, pool_slab *slab, loch_tag tag, uint32_t count,
                                      pool_slab **made, pool_block **zone, bool *has_moved)
{
    loch_status status = LOCH_OK;
    for (uint32_t index = 0; count--; index++) {
        pool_word *word = freeze_next_small(pool, slab, tag, &index);
        pool_slab *target = freeze_find_slab(pool, lane, slab, made, zone, &status);
        if (!target) return status;
        status = lochi_pool_small_move(pool, slab, word, target, lane);
        if (status != LOCH_OK) return status; /* the target may have ended: it takes no other block */
        *has_moved = true;
    }
    return LOCH_OK;
}

/* Moves small blocks first: slabs start at pages, and so does the zone. */
static loch_status freeze_gather_small(lochi_pool *pool, pool_lane *lane, loch_tag tag, pool_block **zone,
                                       bool *has_moved)
{
    pool_slab *made = NULL;
    loch_status status = LOCH_OK;
    for (pool_block *block = NULL; status == LOCH_OK && (block = lochi_pool_next_block(pool, block));) {
        const uint32_t count = freeze_count_small(pool, block, tag);
        bool has_any = false;
        pool_block *before = block->before;
        if (count) status = freeze_gather_slab(pool, lane, block->slab, tag, count, &made, zone, &has_any);
        if (has_any) block = before; /* the record may be gone or merged into a free block */
        *has_moved |= has_any;
    }
    return status;
}

/* Moves blocks that share handles with other tags into one zone, as many as fit. */
static loch_status freeze_gather(lochi_pool *pool, pool_lane *lane, loch_tag tag, loch_freeze_report *report,
                                 bool *goes_on)
{
    size_t least;
    bool has_moved = false;
    *goes_on = false;
    const size_t most = freeze_measure(pool, tag, &least);
    pool_block *zone = most ? freeze_take_zone(pool, lane, most, least) : NULL;
    if (!zone) return LOCH_OK;
    const uintptr_t start = zone->start, end = zone->start + zone->bytes;
    lochi_pool_set_state(zone, POOL_SPECIAL);
    loch_status status = freeze_gather_small(pool, lane, tag, &zone, &has_moved);
    for (pool_block *block = NULL; status == LOCH_OK && zone && (block = lochi_pool_next_block(pool, block));) {
        const bool is_there = block->start >= start && block->start < end;
        if (is_there || block->bytes > zone->bytes || !freeze_is_to_move(pool, block, tag)) continue;
        pool_block *target, *before = block->before;
        status = freeze_cut(pool, &zone, block->bytes, &target);
        if (status == LOCH_OK) status = lochi_pool_move(pool, block, target, lane);
        if (status != LOCH_OK) break;
        freeze_mark(pool, target, report);
        has_moved = true;
        block = before; /* the record may be gone or merged into a free block */
    }
    if (zone) lochi_pool_make_free(pool, zone, lochi_pool_epoch(zone));
    if (has_moved) lochi_pool_mark(pool, lane); /* the event can be waited for even if the stream is captured next */
    *goes_on = has_moved;
    return status;
}

static loch_status freeze_pack(lochi_pool *pool, pool_lane *lane, loch_tag tag, loch_freeze_report *report)
{
    const uint64_t moves = pool->moving.moves, moved = pool->moving.moved_bytes;
    loch_status status = lochi_pool_compact(pool, lane, POOL_GOAL_ALL, 0);
    for (size_t round = 0; tag && round < FREEZE_ROUNDS && status == LOCH_OK; round++) {
        bool goes_on;
        status = freeze_gather(pool, lane, tag, report, &goes_on);
        if (status != LOCH_OK || !goes_on) break;
        status = lochi_pool_compact(pool, lane, POOL_GOAL_ALL, 0);
    }
    report->moves = (size_t)(pool->moving.moves - moves);
    report->moved_bytes = (size_t)(pool->moving.moved_bytes - moved);
    return status;
}

/* --- in public --- */

/* Undoes a freeze that failed. Blocks that were moved stay at their new place. */
static void freeze_undo(lochi_pool *pool)
{
    const loch_error saved = lochi_error_save();
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));)
        if (block->frozen == pool->moving.freezes && lochi_pool_thaw(pool, block) != LOCH_OK)
            LOCHI_LOG(WARNING, "memory stays frozen, because it cannot be made writable: %s",
                      loch_error_get()->sentence);
    lochi_error_restore(&saved);
}

static loch_status freeze_locked(lochi_pool *pool, const loch_freeze_options *options, loch_freeze_report *report)
{
    lochi_lock_assert_held(&pool->lock);
    loch_status status;
    if (!++pool->moving.freezes) pool->moving.freezes = 1; /* 0 means not frozen */
    pool_lane *lane = lochi_pool_lane(pool, options->stream, &status);
    if (!lane) return status;
    if (lane->capture && (lochi_pool_is_in_capture(lane) || lochi_pool_is_under_capture(pool, lane)))
        return LOCH_FAIL(BUSY, "a pool cannot be frozen on a stream that is captured");
    if (pool->sleep.naps) return lochi_pool_refuse_asleep(pool);
    const bool has_movable = pool->moving.bytes || pool->moving.small;
    if (!pool->moving.forbidden && has_movable) LOCH_TRY_RETURN(freeze_pack(pool, lane, options->tag, report));
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));)
        if (freeze_is_of(block, options->tag) && !block->frozen) freeze_mark(pool, block, report);
    if (options->writes == LOCH_FREEZE_PROTECTED) LOCH_TRY_RETURN(lochi_pool_protect_new(pool));
    report->protected_bytes = lochi_pool_count_protected(pool);
    for (pool_block *block = NULL;
         (block = lochi_pool_next_block(pool, block));) /* last, so that a failure before has marked no small block */
        freeze_mark_small(block, options->tag, true, &report->blocks, &report->bytes);
    return LOCH_OK;
}

loch_status loch_pool_freeze(loch_allocator *pool, const loch_freeze_options *options, loch_freeze_report *report)
{
    lochi_pool *self = lochi_pool_of(pool);
    if (!self) return LOCH_FAIL(INVALID, "only a pool can be frozen");
    loch_freeze_options read = {.size = sizeof read};
    LOCH_TRY_RETURN(lochi_sized_read("a struct of options for freezing", options, &read, sizeof read));
    if ((unsigned)read.writes > LOCH_FREEZE_PROTECTED || read.tag >= LOCH_TAG_COUNT_MAX)
        return LOCH_FAIL(INVALID, "the freeze options have unknown values");
    if (!read.stream) read.stream = self->default_stream;
    LOCH_TRY_RETURN(lochi_stream_check(read.stream, self->device));
    loch_freeze_report full = {.size = sizeof full};
    lochi_pool_take_locks(self);
    lochi_pool_stop(self); /* waits until no thread is in its cache */
    const loch_status status = freeze_locked(self, &read, &full);
    if (status != LOCH_OK) freeze_undo(self);
    lochi_pool_go(self);
    lochi_pool_drop_locks(self);
    if (status != LOCH_OK) full.blocks = full.bytes = 0;
    if (lochi_sized_is_set(report)) lochi_sized_write(report, &full, sizeof full);
    return status;
}

loch_status loch_pool_unfreeze(loch_allocator *pool, loch_tag tag, size_t *bytes)
{
    if (bytes) *bytes = 0;
    lochi_pool *self = lochi_pool_of(pool);
    if (!self) return LOCH_FAIL(INVALID, "only a pool can be frozen");
    if (tag >= LOCH_TAG_COUNT_MAX) return LOCH_FAIL(INVALID, "there is no tag %u", (unsigned)tag);
    loch_status status = LOCH_OK;
    size_t blocks = 0, small = 0;
    lochi_lock_take(&self->lock);
    for (pool_block *block = NULL; status == LOCH_OK && (block = lochi_pool_next_block(self, block));) {
        freeze_mark_small(block, tag, false, &blocks, &small);
        if (!block->frozen || !freeze_is_of(block, tag)) continue;
        status = lochi_pool_thaw(self, block);
        if (status == LOCH_OK && bytes) *bytes += lochi_pool_requested(block);
    }
    if (bytes) *bytes += small;
    lochi_lock_drop(&self->lock);
    return status;
}

/* --- pools below a pool --- */

/* Tells whether `above` is one of the parents of `pool`. Parents never change and outlive their children. */
static bool freeze_is_below(const lochi_pool *pool, const lochi_pool *above)
{
    do
        pool = pool->family.parent;
    while (pool && pool != above);
    return pool;
}

typedef struct freeze_walk {
    const lochi_pool *above;
    const loch_freeze_options *options;
    size_t *bytes;
} freeze_walk;

static loch_status freeze_visit(lochi_pool *pool, void *user)
{
    const freeze_walk *walk = user;
    loch_freeze_report report = {.size = sizeof report};
    if (!freeze_is_below(pool, walk->above)) return LOCH_OK;
    const loch_status status = loch_pool_freeze(pool->allocator, walk->options, &report);
    *walk->bytes += report.bytes;
    return status;
}

loch_status lochi_pool_freeze_below(loch_allocator *allocator, const loch_freeze_options *options, size_t *bytes)
{
    freeze_walk walk = {lochi_pool_of(allocator), options, bytes};
    return lochi_pool_visit_all(freeze_visit, &walk);
}
