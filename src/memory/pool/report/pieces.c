/* SPDX-License-Identifier: MIT */
/* loch_pool_walk_memory: visits the pieces of a pool's memory in order of address. Takes an image of the pool
 * (image.c), which is sorted by address, and turns it into pieces without a lock. */
#include "kit/cancel.h"
#include "base/fail.h"
#include "memory/pool/report/image.h"
#include "memory/pool/state/state.h"
#include "memory/pool/report/report.h"

/* A walk over an image. */
typedef struct pieces_walk {
    const pool_image *image;
    size_t block;  /* next block */
    size_t handle; /* raw segments: the one around the next block */
    uintptr_t range;
    size_t range_bytes;
    uint64_t range_number;
    loch_memory_visitor *visitor;
    void *user;
} pieces_walk;

/* Returns the bytes of a block that have memory, from its start on. */
static size_t pieces_backed(const pool_image_block *block)
{
    switch ((pool_state)block->state) {
    case POOL_UNMAPPED:
    case POOL_STALE: return 0; /* its memory counts at its new address */
    case POOL_GROWABLE: return block->part;
    case POOL_DETACHED: return block->marks & POOL_IMAGE_MAPPED ? block->bytes : 0;
    default: return block->bytes;
    }
}

/* Returns the place behind a block and the small blocks in it. */
static size_t pieces_next(const pool_image *image, size_t block)
{
    do
        block++;
    while (block < image->blocks_count && image->blocks[block].marks & POOL_IMAGE_INSIDE);
    return block;
}

/* Finds the range that begins with the next block. The segments of a pool without a reservation are its ranges. */
static void pieces_find_range(pieces_walk *walk)
{
    const pool_image *image = walk->image;
    const uintptr_t start = image->blocks[walk->block].start;
    uintptr_t end = start;
    if (!image->base) {
        const pool_image_handle *handles = image->handles;
        while (walk->handle < image->handles_count &&
               handles[walk->handle].start + handles[walk->handle].bytes <= start)
            walk->handle++;
        if (walk->handle < image->handles_count) {
            end = handles[walk->handle].start + handles[walk->handle].bytes;
            walk->range_number = handles[walk->handle].age;
        }
    } else {
        for (size_t i = walk->block; i < image->blocks_count && image->blocks[i].start == end;
             i = pieces_next(image, i)) {
            const size_t backed = pieces_backed(&image->blocks[i]);
            end += backed;
            if (backed < image->blocks[i].bytes) break;
        }
    }
    walk->range = start;
    walk->range_bytes = end - start;
}

static loch_status pieces_visit(const pieces_walk *walk, const pool_image_block *block, uintptr_t start, size_t bytes,
                                loch_piece_state state)
{
    if (!bytes) return LOCH_OK;
    const bool is_live = state == LOCH_PIECE_USED;
    const loch_memory_piece piece = {.address = (void *)start,
                                     .bytes = bytes,
                                     .requested_bytes = is_live ? block->requested : 0,
                                     .state = block->marks & POOL_IMAGE_ASLEEP ? LOCH_PIECE_ASLEEP : state,
                                     .tag = is_live ? block->tag : 0,
                                     .stream_id = block->stream,
                                     .id = is_live ? block->id : 0,
                                     .range_address = (void *)walk->range,
                                     .range_bytes = walk->range_bytes,
                                     .range_number = walk->range_number};
    return walk->visitor(&piece, walk->user);
}

static loch_piece_state pieces_state(const pool_image_block *block)
{
    const pool_state state = (pool_state)block->state;
    if (lochi_pool_is_out(state)) return LOCH_PIECE_USED;
    if (state == POOL_DORMANT) return LOCH_PIECE_ASLEEP;
    return state == POOL_WAITING ? LOCH_PIECE_WAITING : LOCH_PIECE_FREE;
}

/* Visits a block, or the small blocks of a slab and the free memory between them. */
static loch_status pieces_visit_block(const pieces_walk *walk)
{
    const pool_image_block *block = &walk->image->blocks[walk->block];
    if (block->state != POOL_SLAB)
        return pieces_visit(walk, block, block->start, pieces_backed(block), pieces_state(block));
    uintptr_t at = block->start;
    const size_t end = pieces_next(walk->image, walk->block);
    for (size_t i = walk->block + 1; i < end; i++) {
        const pool_image_block *small = &walk->image->blocks[i];
        LOCH_TRY_RETURN(pieces_visit(walk, block, at, small->start - at, LOCH_PIECE_FREE));
        LOCH_TRY_RETURN(pieces_visit(walk, small, small->start, small->bytes, pieces_state(small)));
        at = small->start + small->bytes;
    }
    return pieces_visit(walk, block, at, block->start + block->bytes - at, LOCH_PIECE_FREE);
}

static loch_status pieces_walk_image(pieces_walk *walk)
{
    loch_status status = LOCH_OK;
    for (; status == LOCH_OK && walk->block < walk->image->blocks_count;
         walk->block = pieces_next(walk->image, walk->block)) {
        const pool_image_block *block = &walk->image->blocks[walk->block];
        if (!pieces_backed(block)) continue;
        if (block->start >= walk->range + walk->range_bytes) pieces_find_range(walk);
        status = pieces_visit_block(walk);
    }
    return status;
}

loch_status loch_pool_walk_memory(loch_allocator *pool, loch_memory_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    lochi_pool *self = lochi_pool_of(pool);
    if (!self || !visitor) return LOCH_FAIL(INVALID, "the walk over memory needs a pool and a visitor");
    loch_stats stats = {.size = sizeof stats};
    lochi_lock_take(&self->lock);
    lochi_pool_read_stats(self, &stats);
    lochi_lock_drop(&self->lock);
    pool_image image;
    loch_status status = lochi_pool_image_take(self, true, stats.blocks, &image);
    if (status == LOCH_OK) {
        pieces_walk walk = {.image = &image, .visitor = visitor, .user = user};
        lochi_pool_image_sort(&image);
        status = pieces_walk_image(&walk);
    }
    lochi_pool_image_free(&image);
    return status;
}
