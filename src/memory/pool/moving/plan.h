/* SPDX-License-Identifier: MIT */
/* A plan of moves.
 *
 * A plan works on its own list of items and changes nothing in the pool. At first the list shows the blocks as they
 * are, later as the plan will leave them.
 *
 * This part is the list: look at the pool, place an item in a hole, take that back. vacate.h and slide.h make plans
 * with it, and compact.c carries them out. */
#ifndef LOCHI_POOL_PLAN_H
#define LOCHI_POOL_PLAN_H

#include "memory/pool/state/state.h"

#define PLAN_NONE UINT32_MAX

typedef enum plan_kind {
    PLAN_HOLE,  /* free memory */
    PLAN_LIVE,  /* may move */
    PLAN_FIXED, /* may not move, or is not memory */
    PLAN_TARGET /* future place of a block */
} plan_kind;

/* A stretch of addresses, in a list by address: at first as the blocks are, later as the plan will leave them. */
typedef struct plan_item {
    pool_block *block; /* of a target: set when it is cut */
    uintptr_t start;
    size_t bytes;
    uint32_t before, behind;
    uint32_t handle; /* the first handle that ends behind its start */
    uint8_t kind;    /* plan_kind */
    bool is_gone;    /* merged into a neighbour */
    bool is_binned;  /* a hole that is listed by its size */
    union {
        uint32_t origin; /* of a target: the item that moves there */
        uint32_t tried;  /* of a live item: last pass in which a handle with only this item could not be emptied */
        struct {
            uint32_t next, prev; /* of a hole: in the list of its bin */
        };
    };
} plan_item;

typedef struct plan_handle {
    uintptr_t start;
    size_t bytes;
    size_t used;           /* bytes in it that are not free */
    size_t settled;        /* of those, the bytes that cannot move */
    uint32_t first, count; /* of the items in it that may move */
} plan_handle;

/* Holes by size: 64 bins for each power of two. */
#define PLAN_BIN_BITS 6
#define PLAN_BINS (64 << PLAN_BIN_BITS)
typedef struct plan_bins {
    uint64_t words[PLAN_BINS / 64]; /* bins that are not empty */
    uint32_t first[PLAN_BINS];
} plan_bins;

typedef struct plan_move {
    uint32_t from, to, before; /* items: the moving one, its target, and the one before the target when it is cut */
    size_t batch;              /* targets of one batch are cut before its first move */
    size_t bytes;
    uintptr_t source, target;
    bool is_slide; /* `from` slides into the free memory before it; `to` and `before` are unused */
} plan_move;

typedef struct pool_plan {
    lochi_pool *pool;
    pool_lane *lane;
    plan_item *items;
    uint32_t *lives; /* items that may move, by address */
    plan_bins *holes;
    plan_move *moves;
    plan_handle *handles; /* by address; raw segments in the order of the pool's list */
    uint32_t *order;      /* handles that could be emptied, the least dense first; twice as many places */
    size_t items_count, lives_count, handles_count;
    size_t moves_count, moved_bytes, joined_bytes, batches;
    uint32_t pass;
} pool_plan;

/* Lists all blocks and handles of the pool. The caller has set pool and lane; the rest is zero. E_HOST_MEMORY; call
 * lochi_plan_end in any case. */
loch_status lochi_plan_look(pool_plan *plan);
void lochi_plan_end(pool_plan *plan);

/* Tells whether a block is free memory that the plan may use. */
bool lochi_plan_is_hole(const pool_plan *plan, const pool_block *block);
/* Counts bytes from the start of an item into handles (1) or out of them (-1), and updates joined_bytes, the bytes of
 * empty handles. */
void lochi_plan_count(pool_plan *plan, const plan_item *item, size_t bytes, bool is_settled, int sign);
/* Finds the handle of the byte before `end`, which is the handle `first` or one of its neighbours above. */
size_t lochi_plan_last_handle(const pool_plan *plan, size_t first, uintptr_t end);
/* Returns the size of the largest hole. */
size_t lochi_plan_largest(const pool_plan *plan);

/* Finds a hole for `bytes` outside of [start, end); PLAN_NONE if there is no such hole. Sets `filled` to the bytes of
 * empty handles that a block there would use. */
uint32_t lochi_plan_find_hole(const pool_plan *plan, size_t bytes, uintptr_t start, uintptr_t end, size_t *filled);
/* Plan to put an item at the start of a hole, and take the last such move back. */
void lochi_plan_place(pool_plan *plan, uint32_t from, uint32_t into);
void lochi_plan_unplace(pool_plan *plan);
/* Turns the place of a moved item into a hole. It must have been counted out. */
void lochi_plan_leave(pool_plan *plan, uint32_t from);

#endif
