/* SPDX-License-Identifier: MIT */
/* Images: copies of a pool's records at one moment, for snapshots (memory/snapshot). */
#ifndef LOCHI_POOL_IMAGE_H
#define LOCHI_POOL_IMAGE_H

#include "memory/pool/state/state.h"

/* Bits of pool_image_block.marks. */
enum {
    POOL_IMAGE_INSIDE = 1 << 0,    /* a small block; the slab is an earlier record */
    POOL_IMAGE_SHARED = 1 << 1,    /* further streams use the block */
    POOL_IMAGE_CAPTURED = 1 << 2,  /* belongs to a capture */
    POOL_IMAGE_MOVABLE = 1 << 3,   /* the pool may move the block */
    POOL_IMAGE_PINNED = 1 << 4,    /* movable, and pinned now */
    POOL_IMAGE_MOVING = 1 << 5,    /* movable, and the copy of its last move has not passed */
    POOL_IMAGE_FROZEN = 1 << 6,    /* frozen */
    POOL_IMAGE_PROTECTED = 1 << 7, /* read-only for the host */
    POOL_IMAGE_RANGE = 1 << 8,     /* the memory of a child pool */
    POOL_IMAGE_ASLEEP = 1 << 9,    /* its memory is asleep, at least in part */
    POOL_IMAGE_PENDING = 1 << 10,  /* free, and its own stream may still use it */
    POOL_IMAGE_MAPPED = 1 << 11    /* detached, and its addresses have memory */
};

/* The copy of a block. */
typedef struct pool_image_block {
    uintptr_t start;
    size_t bytes;
    size_t requested;                     /* handed out: requested bytes */
    size_t part;                          /* POOL_GROWABLE: bytes with memory; POOL_SLAB: bytes of each small block */
    uint64_t id;                          /* 0 if the block has none */
    uint64_t stream;                      /* id of the stream of its lane; 0 for addresses without memory */
    const struct lochi_live_stack *stack; /* call stack of the allocation; set by the caller; NULL if not known */
    uint32_t count;                       /* POOL_SLAB: number of small blocks */
    uint32_t cached;                      /* POOL_SLAB: number of small blocks that threads cache */
    uint16_t tag;
    uint16_t marks;
    uint8_t state; /* pool_state */
} pool_image_block;

/* The copy of a handle or of a raw segment. */
typedef struct pool_image_handle {
    uintptr_t start; /* 0 if it is not mapped */
    size_t bytes;
    uint64_t age;      /* of a segment from a source: how many came before it */
    unsigned mappings; /* addresses at which it is mapped, including old ones */
    bool is_raw, is_asleep;
} pool_image_handle;

/* The copy of a lane. */
typedef struct pool_image_lane {
    uint64_t stream, capture;
    size_t events; /* pending */
    bool is_default, is_closed;
} pool_image_lane;

/* The copy of a thread's cache. */
typedef struct pool_image_cache {
    uint32_t slot; /* of the thread */
    uint64_t stream;
    size_t bytes;
} pool_image_cache;

/* The image of a pool. The arrays belong to it: lochi_pool_image_free. */
typedef struct pool_image {
    loch_pool_info info;
    loch_memory_kind kind;
    uintptr_t base; /* of the reservation; 0 with raw segments */
    size_t span, cell_bytes;
    uint64_t parent; /* number of the parent's allocator; 0 for none */
    bool is_range;   /* the memory is a block of the parent */
    pool_image_block *blocks;
    pool_image_handle *handles;
    pool_image_lane *lanes;
    pool_image_cache *caches;
    size_t blocks_count, handles_count, lanes_count, caches_count;
    size_t blocks_room, handles_room, lanes_room, caches_room;
} pool_image;

/* Takes the image of a pool, with or without its blocks, handles and caches. The pool's lock is held while the records
 * are copied. Memory for them is allocated without it, at first for about `live` live blocks. E_HOST_MEMORY. Call
 * lochi_pool_image_free in any case. */
loch_status lochi_pool_image_take(lochi_pool *pool, bool has_blocks, size_t live, pool_image *image);

/* Sorts blocks and handles by address. */
void lochi_pool_image_sort(pool_image *image);

/* Frees the arrays of an image. */
void lochi_pool_image_free(pool_image *image);

#endif
