/* SPDX-License-Identifier: MIT */
/* Finds handles that lie wholly in free blocks, and gives them back to the device. A request that fails takes as much
 * again, in the same sizes. */
#include "memory/pool/supply/release.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/supply/handle.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"
#include "memory/pool/supply/segment.h"

#define RELEASE_PARTS 32 /* sizes that a list has room for at first */

static pool_handle *release_first_whole(lochi_pool *pool, const pool_block *block, uintptr_t from)
{
    return lochi_pool_find_whole(pool, from > block->start ? from : block->start, block->start + block->bytes);
}

/* Returns what the device gets back with a handle: a raw segment may have bytes in front of its first cell. */
static size_t release_count(const pool_handle *handle)
{
    return handle->handle ? handle->bytes : handle->raw_bytes;
}

size_t lochi_pool_count_idle(lochi_pool *pool, bool has_passed)
{
    lochi_lock_assert_held(&pool->lock);
    size_t bytes = pool->unmapped_handle_bytes;
    for (pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (has_passed && lane->capture) continue;
        int bin = POOL_BINS - 1;
        for (pool_block *block; (block = lochi_pool_bins_below(&lane->bins, &bin)); bin--)
            for (; block; block = block->list_next) {
                if (has_passed && block->is_piece) continue;
                const pool_handle *handle = release_first_whole(pool, block, 0);
                for (; handle; handle = release_first_whole(pool, block, handle->at + handle->bytes))
                    if (!has_passed || lochi_pool_is_past(block, handle)) bytes += release_count(handle);
            }
    }
    return bytes;
}

/* Returns the bytes of the handles in a range of free addresses. */
static size_t release_count_between(lochi_pool *pool, uintptr_t start, uintptr_t end)
{
    size_t bytes = 0;
    for (const pool_handle *handle; (handle = lochi_pool_find_whole(pool, start, end)); bytes += release_count(handle))
        start = handle->at + handle->bytes;
    return bytes;
}

/* Tells whether the block behind a free one is free too, and its memory may be merged with it. */
static bool release_goes_on(const pool_block *block)
{
    const pool_block *behind = block->behind;
    return behind && lochi_pool_state(behind) == POOL_FREE &&
           (behind->lane == block->lane || (!behind->lane->capture && !block->lane->capture));
}

size_t lochi_pool_count_whole(lochi_pool *pool)
{
    lochi_lock_assert_held(&pool->lock);
    size_t bytes = pool->unmapped_handle_bytes;
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));) {
        if (lochi_pool_state(block) != POOL_FREE) continue;
        const uintptr_t start = block->start;
        while (release_goes_on(block))
            block = block->behind;
        bytes += release_count_between(pool, start, block->start + block->bytes);
    }
    return bytes;
}

pool_handle *lochi_pool_find_idle(lochi_pool *pool, const pool_lane *lane, size_t max_bytes, pool_block **out)
{
    lochi_lock_assert_held(&pool->lock);
    int bin = POOL_BINS - 1;
    for (pool_block *block; (block = lochi_pool_bins_below(&lane->bins, &bin)); bin--)
        for (; block; block = block->list_next) {
            if (block->bytes < pool->smallest / 2) return NULL; /* the bins below have smaller blocks still */
            if (block->bytes < pool->smallest || block->is_piece) continue;
            pool_handle *handle = release_first_whole(pool, block, 0);
            while (handle && (handle->bytes > max_bytes || !lochi_pool_is_past(block, handle)))
                handle = release_first_whole(pool, block, handle->at + handle->bytes);
            if (!handle) continue;
            *out = block;
            return handle;
        }
    return NULL;
}

/* Finds the free segment that has passed and whose size is nearest to `bytes`: the smallest one that is not smaller, or
 * else the largest one. NULL for none. */
static pool_handle *release_find_near(lochi_pool *pool, size_t bytes, pool_block **out)
{
    pool_handle *best = NULL;
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        int bin = POOL_BINS - 1;
        for (pool_block *block; !lane->capture && (block = lochi_pool_bins_below(&lane->bins, &bin)); bin--)
            for (; block && block->bytes >= pool->smallest; block = block->list_next) {
                if (block->before || block->behind || block->is_piece) continue;
                pool_handle *segment = lochi_pool_find_handle(pool, block->start);
                if (!lochi_pool_is_past(block, segment)) continue;
                if (best && (segment->bytes < bytes ? segment->bytes <= best->bytes
                                                    : best->bytes >= bytes && segment->bytes >= best->bytes))
                    continue;
                best = segment;
                *out = block;
            }
    }
    return best;
}

/* --- giving back --- */

/* Makes room for one more size. Returns false without host memory: nothing is given back then. */
static bool release_prepare(pool_given *given)
{
    if (!given || given->count < given->capacity) return true;
    const size_t capacity = given->capacity ? 2 * given->capacity : RELEASE_PARTS;
    pool_given_part *parts = lochi_realloc(given->parts, capacity * sizeof *parts);
    if (!parts) return false;
    given->parts = parts;
    given->capacity = capacity;
    return true;
}

/* Gives one idle handle or segment back, and adds the bytes that the device got to `*gone`. Returns false on failure;
 * the device may have a handle even so, whose addresses are lost. */
static bool release_one(lochi_pool *pool, pool_handle *handle, pool_block *block, pool_given *given, size_t *gone)
{
    const size_t before = pool->reserved;
    const pool_given_part part = {handle->bytes, handle->handle ? NULL : block->lane};
    if (!release_prepare(given)) return false;
    const loch_status status =
        part.lane ? lochi_pool_drop_segment(pool, handle, block) : lochi_pool_destroy_free(pool, handle, block);
    if (pool->reserved != before && given) given->parts[given->count++] = part;
    *gone += before - pool->reserved; /* the supply lock is held: no other thread changes it */
    return status == LOCH_OK;
}

void lochi_pool_make_way(lochi_pool *pool, size_t bytes, pool_given *given)
{
    lochi_pool_assert_both(pool);
    for (size_t gone = 0; gone < bytes;) {
        pool_block *block = NULL;
        pool_handle *segment = release_find_near(pool, bytes - gone, &block);
        if (!segment || !release_one(pool, segment, block, given, &gone)) return;
    }
}

/* Destroys unmapped handles until `bytes` have gone or none is left. Returns the bytes that have gone. */
static size_t release_unmapped(lochi_pool *pool, size_t bytes, pool_given *given)
{
    size_t gone = 0;
    while (pool->unmapped_handles && gone < bytes && release_prepare(given)) {
        gone += pool->unmapped_handles->bytes;
        if (given) given->parts[given->count++] = (pool_given_part){pool->unmapped_handles->bytes, NULL};
        lochi_pool_destroy_handle(pool, pool->unmapped_handles);
    }
    return gone;
}

size_t lochi_pool_give_back(lochi_pool *pool, size_t bytes, pool_given *given)
{
    lochi_pool_assert_both(pool);
    if (pool->range) return 0; /* a range stays until the pool ends */
    size_t gone = release_unmapped(pool, bytes, given);
    for (pool_lane *lane = pool->lanes; lane && gone < bytes; lane = lane->next) {
        if (lane->capture) continue;
        pool_block *block;
        for (pool_handle *handle; gone < bytes && (handle = lochi_pool_find_idle(pool, lane, SIZE_MAX, &block));)
            if (!release_one(pool, handle, block, given, &gone)) return gone;
    }
    return gone;
}

/* --- taking back --- */

void lochi_pool_take_back(lochi_pool *pool, pool_given *given)
{
    lochi_pool_assert_both(pool);
    const loch_error saved = lochi_error_save();
    for (size_t i = 0; i < given->count; i++) {
        const pool_given_part *part = &given->parts[i];
        pool_handle *handle;
        if (part->lane) (void)lochi_pool_take_segment(pool, part->bytes, pool->cell_bytes, part->lane);
        for (size_t taken = 0; !part->lane && taken < part->bytes; taken += handle->bytes)
            if (lochi_pool_create_some(pool, part->bytes - taken, &handle) != LOCH_OK) break;
    }
    lochi_error_restore(&saved);
    lochi_pool_forget_given(given);
}

void lochi_pool_forget_given(pool_given *given)
{
    lochi_free(given->parts);
    *given = (pool_given){NULL, 0, 0};
}

/* --- idle handles --- */

/* Finds the block at the start of a handle. A record that is in a bin and covers the address is that block, whatever
 * it was when the handle noted it. */
static pool_block *release_first_block(lochi_pool *pool, const pool_handle *handle)
{
    pool_block *block = handle->first;
    if (!pool->policy.is_virtual) return block;
    if (block && lochi_pool_is_idle(block) && handle->at - block->start < block->bytes) return block;
    block = lochi_pool_find_before(pool, pool->first, handle->at);
    for (; block->start + block->bytes <= handle->at; block = block->behind)
        pool->cap.visits++;
    return block;
}

/* What can be done with a handle that was listed as idle. */
typedef struct release_verdict {
    bool is_live;       /* a block is not free */
    bool is_kept;       /* a free piece above 1 MiB is on it */
    bool is_stuck;      /* it belongs to a capture, or an old address of it is still mapped */
    bool is_unfinished; /* streams may still use it */
    pool_block *first;  /* its free blocks, from this one on */
    bool is_apart;      /* they are several, or arenas or pieces */
    pool_lane *lane;    /* lane that may have all of them */
} release_verdict;

/* Looks at the blocks on a listed handle. A handle that is in use is listed no more. */
static release_verdict release_judge(lochi_pool *pool, pool_handle *handle)
{
    pool_block *block = release_first_block(pool, handle);
    const uintptr_t end = handle->at + handle->bytes;
    release_verdict verdict = {.first = block, .lane = block->lane, .is_stuck = handle->mappings != 1};
    for (;; block = block->behind) {
        pool->cap.visits++;
        if (!lochi_pool_is_idle(block)) {
            lochi_pool_unlist_idle(&handle->idle, block->start > handle->at ? block->start : handle->at);
            verdict.is_live = true;
            return verdict;
        }
        verdict.is_kept |= block->is_piece && block->bytes > POOL_WHOLE_BIG;
        verdict.is_apart |= block->is_piece || block->is_arena || block != verdict.first;
        verdict.is_stuck |= block->lane->capture != 0;
        verdict.is_unfinished |= !lochi_pool_is_past(block, handle);
        if (!lochi_pool_has_passed(block->lane, lochi_pool_epoch(block))) verdict.lane = block->lane;
        if (block->start + block->bytes >= end) return verdict;
    }
}

static loch_status release_give(lochi_pool *pool, pool_handle *handle, const release_verdict *verdict)
{
    pool_block *block = verdict->first;
    if (verdict->is_apart) block = lochi_pool_join_for(pool, block, handle->at + handle->bytes, verdict->lane);
    return handle->handle ? lochi_pool_destroy_free(pool, handle, block) : lochi_pool_drop_segment(pool, handle, block);
}

/* Gives listed handles back. Returns the bytes. Other threads only add to the list during the driver calls. */
static size_t release_listed(lochi_pool *pool, pool_idle_list *list, size_t bytes, bool is_small, bool *is_unfinished)
{
    size_t gone = 0;
    for (pool_idle *idle = list->first, *next; idle && gone < bytes; idle = next) {
        pool_handle *handle = LOCHI_CONTAINER(idle, pool_handle, idle);
        next = idle->next;
        const release_verdict verdict = release_judge(pool, handle);
        if (verdict.is_live) continue;
        if (verdict.is_kept && is_small) {
            lochi_pool_unlist_idle(&handle->idle, 0);
            lochi_pool_list_idle(&pool->cap.kept, &handle->idle);
        } else if (verdict.is_unfinished && !verdict.is_stuck) {
            *is_unfinished = true;
        } else if (!verdict.is_stuck) {
            const size_t size = release_count(handle);
            if (release_give(pool, handle, &verdict) != LOCH_OK) return gone;
            gone += size;
        }
    }
    return gone;
}

void lochi_pool_give_back_listed(lochi_pool *pool, size_t bytes, bool is_small, bool *is_unfinished)
{
    lochi_pool_assert_both(pool);
    *is_unfinished = false;
    size_t gone = 0;
    if (pool->range) return; /* a range stays until the pool ends */
    while (pool->unmapped_handles && gone < bytes) {
        gone += pool->unmapped_handles->bytes;
        lochi_pool_destroy_handle(pool, pool->unmapped_handles);
    }
    if (gone < bytes) gone += release_listed(pool, &pool->cap.handles, bytes - gone, is_small, is_unfinished);
    if (gone < bytes && !is_small) release_listed(pool, &pool->cap.kept, bytes - gone, false, is_unfinished);
}
