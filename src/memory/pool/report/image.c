/* SPDX-License-Identifier: MIT */
/* Copies the records of a pool while its lock is held. The room is estimated and allocated before the lock is taken. If
 * the pool has grown beyond it, the lock is dropped, the room is enlarged to what was counted, and the copy begins
 * again. So other threads wait for one copy at a time and never for an allocation. */
#include "memory/pool/report/image.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "memory/movable.h"
#include "memory/pool/heap/heap.h"
#include "memory/pool/front/front.h"
#include "memory/pool/lanes/lanes.h"
#include "memory/pool/state/state.h"
#include "memory/pool/report/report.h"
#include <stdlib.h>

/* --- blocks --- */

static uint16_t image_mark_owner(const lochi_movable *owner)
{
    if (!owner) return 0;
    const bool is_moving = owner->torn_from || (owner->lane && !lochi_pool_has_passed(owner->lane, owner->epoch));
    return (uint16_t)(POOL_IMAGE_MOVABLE | (lochi_movable_is_pinned(owner) ? POOL_IMAGE_PINNED : 0) |
                      (is_moving ? POOL_IMAGE_MOVING : 0));
}

/* Tells whether memory of a block is asleep, at least in part. */
static bool image_is_asleep(const lochi_pool *pool, const pool_block *block)
{
    if (!pool->sleep.bytes) return false;
    for (uintptr_t at = block->start; at < block->start + block->bytes;) {
        const pool_handle *handle = lochi_pool_find_handle(pool, at);
        if (lochi_pool_is_asleep(handle)) return true;
        at = lochi_pool_find_end(pool, handle, at);
    }
    return false;
}

static uint16_t image_mark(const lochi_pool *pool, const pool_block *block, pool_state state)
{
    uint16_t marks = block->is_captured ? POOL_IMAGE_CAPTURED : 0;
    if (state == POOL_DETACHED && lochi_pool_find_handle(pool, block->start)) marks |= POOL_IMAGE_MAPPED;
    if (state == POOL_UNMAPPED || state == POOL_DETACHED || state == POOL_STALE) return marks;
    if (image_is_asleep(pool, block)) marks |= POOL_IMAGE_ASLEEP;
    if (block->has_uses) marks |= POOL_IMAGE_SHARED;
    if (state == POOL_FREE && block->lane && !lochi_pool_has_passed(block->lane, lochi_pool_epoch(block)))
        marks |= POOL_IMAGE_PENDING;
    if (state != POOL_SPECIAL) return marks;
    if (block->frozen) marks |= POOL_IMAGE_FROZEN;
    if (block->is_protected) marks |= POOL_IMAGE_PROTECTED;
    if (lochi_pool_is_range(block)) marks |= POOL_IMAGE_RANGE;
    return marks | image_mark_owner(block->owner);
}

/* Adds a record if there is room for it, and counts it in any case. */
static pool_image_block *image_add(pool_image *image, uintptr_t start, size_t bytes, pool_state state)
{
    const size_t at = image->blocks_count++;
    if (at >= image->blocks_room) return NULL;
    image->blocks[at] = (pool_image_block){.start = start, .bytes = bytes, .state = (uint8_t)state};
    return &image->blocks[at];
}

/* Copies the small blocks of a slab that are handed out, or freed and not free yet. Returns their number. */
static uint32_t image_copy_small(pool_slab *slab, uint64_t stream, uint16_t marks, pool_image *image)
{
    const pool_id *ids = atomic_load_explicit(&slab->ids, memory_order_acquire);
    uint32_t count = 0;
    for (uint32_t i = 0; i < slab->count; i++) {
        const uint32_t word = atomic_load_explicit(&slab->words[i], memory_order_relaxed);
        if (!(word & (POOL_WORD_LIVE | POOL_WORD_HAS_USES | POOL_WORD_DIRTY))) continue;
        count++;
        const bool is_live = word & POOL_WORD_LIVE;
        pool_image_block *copy = image_add(image, slab->start + (uintptr_t)i * slab->object_bytes, slab->object_bytes,
                                           is_live ? POOL_USED : POOL_WAITING);
        if (!copy) continue;
        copy->stream = stream;
        copy->marks = (uint16_t)((marks & (POOL_IMAGE_ASLEEP | POOL_IMAGE_CAPTURED)) | POOL_IMAGE_INSIDE);
        if (!is_live) continue;
        copy->requested = word & POOL_WORD_BYTES;
        copy->tag = (uint16_t)lochi_pool_word_tag(word);
        copy->marks = (uint16_t)(copy->marks | (word & POOL_WORD_HAS_USES ? POOL_IMAGE_SHARED : 0) |
                                 (word & POOL_WORD_FROZEN ? POOL_IMAGE_FROZEN : 0) |
                                 image_mark_owner(slab->owners ? slab->owners[i] : NULL));
        if (word & POOL_WORD_NAMED && ids) copy->id = atomic_load_explicit(&ids[i], memory_order_relaxed);
    }
    return count;
}

static void image_copy_block(lochi_pool *pool, pool_block *block, pool_image *image)
{
    const pool_state state = lochi_pool_state(block);
    const uint64_t stream = block->lane && state != POOL_UNMAPPED ? loch_stream_get_id(block->lane->stream) : 0;
    const size_t at = image->blocks_count;
    const uint16_t marks = image_mark(pool, block, state);
    pool_image_block *copy = image_add(image, block->start, block->bytes, state);
    if (copy) {
        copy->stream = stream;
        copy->marks = marks;
        if (lochi_pool_is_out(state)) {
            copy->requested = lochi_pool_requested(block);
            copy->tag = block->tag;
            copy->part = state == POOL_GROWABLE ? block->committed : 0;
            copy->id = lochi_pool_name(&block->id, pool->last_id + 1);
            pool->last_id += copy->id == pool->last_id + 1;
        }
    }
    if (state != POOL_SLAB) return;
    const pool_slab *slab = block->slab;
    const uint32_t copied = image_copy_small(block->slab, stream, marks, image), out = slab->count - slab->free_count;
    if (at >= image->blocks_room) return;
    image->blocks[at].part = slab->object_bytes;
    image->blocks[at].count = slab->count;
    image->blocks[at].cached = out > copied ? out - copied : 0;
}

/* --- handles, lanes, caches --- */

static void image_copy_handles(const pool_handle *handle, bool is_mapped, pool_image *image)
{
    for (; handle; handle = handle->next) {
        const size_t at = image->handles_count++;
        if (at >= image->handles_room) continue;
        image->handles[at] = (pool_image_handle){.start = is_mapped ? handle->at : 0,
                                                 .bytes = handle->bytes,
                                                 .age = handle->age,
                                                 .mappings = is_mapped ? handle->mappings : 0,
                                                 .is_raw = !handle->handle && handle->raw,
                                                 .is_asleep = lochi_pool_is_asleep(handle)};
    }
}

static void image_copy_lanes(const lochi_pool *pool, pool_image *image)
{
    for (const pool_lane *lane = pool->lanes; lane; lane = lane->next) {
        if (lane->is_spare) continue;
        const size_t at = image->lanes_count++;
        if (at >= image->lanes_room) continue;
        image->lanes[at] = (pool_image_lane){.stream = loch_stream_get_id(lane->stream),
                                             .capture = lochi_pool_is_in_capture(lane) ? lane->capture : 0,
                                             .events = lane->marks_count,
                                             .is_default = lane->stream == pool->default_stream,
                                             .is_closed = lane->is_closed};
    }
}

static void image_copy_caches(const lochi_pool *pool, pool_image *image)
{
    for (uint32_t slot = 1; slot <= LOCHI_SLOT_SHARED; slot++)
        for (const pool_cache *cache = atomic_load_explicit(&pool->caches[slot], memory_order_relaxed); cache;
             cache = cache->next) {
            const size_t at = image->caches_count++;
            if (at >= image->caches_room) continue;
            size_t bytes = cache->large_bytes + atomic_load_explicit(&cache->last_bytes, memory_order_relaxed);
            for (uint32_t class = 0; class < pool->classes; class ++)
                bytes += (size_t)cache->stacks[class].count * pool->class_bytes[class];
            image->caches[at] = (pool_image_cache){slot - 1, loch_stream_get_id(cache->lane->stream), bytes};
        }
}

/* --- the copy --- */

static void image_copy(lochi_pool *pool, bool has_blocks, pool_image *image)
{
    lochi_lock_assert_held(&pool->lock);
    image->blocks_count = image->handles_count = image->lanes_count = image->caches_count = 0;
    image->info = (loch_pool_info){.size = sizeof image->info};
    lochi_pool_read_info(pool, &image->info);
    image->kind = pool->kind;
    image->base = pool->base;
    image->span = pool->span;
    image->cell_bytes = pool->cell_bytes;
    image->parent = pool->family.parent ? pool->family.parent->allocator->node.key : 0;
    image->is_range = pool->range != NULL;
    image_copy_lanes(pool, image);
    if (!has_blocks) return;
    lochi_pool_stop(pool); /* the fast path changes what is copied */
    for (pool_block *block = NULL; (block = lochi_pool_next_block(pool, block));)
        image_copy_block(pool, block, image);
    image_copy_caches(pool, image);
    lochi_pool_go(pool);
    image_copy_handles(pool->handles, true, image);
    image_copy_handles(pool->unmapped_handles, false, image);
    image_copy_handles(pool->sleep.handles, true, image);
}

/* Reads the counts from which the first room is estimated. Walks nothing. */
static void image_guess(lochi_pool *pool, bool has_blocks, size_t live, pool_image *image)
{
    lochi_lock_take(&pool->lock);
    image->blocks_count = has_blocks ? pool->records.count + live : 0;
    image->handles_count = has_blocks ? pool->handles_count : 0;
    lochi_lock_drop(&pool->lock);
    image->lanes_count = 8;
    image->caches_count = has_blocks ? 8 : 0;
}

/* Enlarges one array to `count` items and some more. Old contents are lost. */
static bool image_enlarge(void **array, size_t *room, size_t count, size_t bytes)
{
    if (count <= *room) return true;
    const size_t wanted = count + count / 8 + 16;
    lochi_free(*array);
    *array = lochi_alloc_array(wanted, bytes);
    *room = *array ? wanted : 0;
    return *array != NULL;
}

#define IMAGE_ENLARGE(image, noun)                                                                                     \
    image_enlarge((void **)&(image)->noun, &(image)->noun##_room, (image)->noun##_count, sizeof *(image)->noun)

static bool image_has_room(const pool_image *image)
{
    return image->blocks_count <= image->blocks_room && image->handles_count <= image->handles_room &&
           image->lanes_count <= image->lanes_room && image->caches_count <= image->caches_room;
}

loch_status lochi_pool_image_take(lochi_pool *pool, bool has_blocks, size_t live, pool_image *image)
{
    *image = (pool_image){.base = 0};
    image_guess(pool, has_blocks, live, image);
    do {
        if (!IMAGE_ENLARGE(image, blocks) || !IMAGE_ENLARGE(image, handles) || !IMAGE_ENLARGE(image, lanes) ||
            !IMAGE_ENLARGE(image, caches)) {
            image->blocks_count = image->handles_count = image->lanes_count = image->caches_count = 0;
            return LOCH_FAIL(HOST_MEMORY, "no host memory to copy the records of pool \"%s\"",
                             loch_allocator_get_name(pool->allocator));
        }
        lochi_lock_take(&pool->lock);
        image_copy(pool, has_blocks, image);
        lochi_lock_drop(&pool->lock);
    } while (!image_has_room(image));
    return LOCH_OK;
}

/* --- order --- */

static int image_compare_blocks(const void *left, const void *right)
{
    const pool_image_block *a = left, *b = right;
    if (a->start != b->start) return a->start < b->start ? -1 : 1;
    return (a->marks & POOL_IMAGE_INSIDE) - (b->marks & POOL_IMAGE_INSIDE); /* a slab before its first small block */
}

static int image_compare_handles(const void *left, const void *right)
{
    const pool_image_handle *a = left, *b = right;
    return a->start < b->start ? -1 : a->start > b->start;
}

void lochi_pool_image_sort(pool_image *image)
{
    if (image->handles_count)
        qsort(image->handles, image->handles_count, sizeof *image->handles, image_compare_handles);
    if (image->blocks_count && !image->base) /* the blocks of a reservation are in order already */
        qsort(image->blocks, image->blocks_count, sizeof *image->blocks, image_compare_blocks);
}

void lochi_pool_image_free(pool_image *image)
{
    lochi_free(image->blocks);
    lochi_free(image->handles);
    lochi_free(image->lanes);
    lochi_free(image->caches);
    *image = (pool_image){.base = 0};
}
