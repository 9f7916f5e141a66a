/* SPDX-License-Identifier: MIT */
/* A plan of moves, for the files of the pool that make one and the one that carries it out.
 *
 * It is made on a list of its own, and changes nothing. The list is first as the blocks are, then as the plan makes them.
 *
 * This part is the list: looking, placing an item in a hole, taking that back. vacate.h and slide.h make plans on it. */
#ifndef LOCHI_POOL_PLAN_H
#define LOCHI_POOL_PLAN_H

#include "memory/pool/state.h"

#define PLAN_NONE UINT32_MAX

typedef enum plan_kind {
    PLAN_HOLE,  /* free memory */
    PLAN_LIVE,  /* may move */
    PLAN_FIXED, /* may not, or is no memory */
    PLAN_TARGET /* where a block will be */
} plan_kind;

/* A piece of the addresses, in a list by address: first as the blocks are, then as the plan makes them. */
typedef struct plan_item {
    pool_block *block; /* of a target: once it is cut */
    uintptr_t start;
    size_t bytes;
    uint32_t before, behind;
    plan_kind kind;
    bool is_gone;    /* merged into a neighbour */
    uint32_t origin; /* of a target: what moves there */
    uint32_t tried;  /* the last pass in which a handle with this alone could not be emptied */
} plan_item;

typedef struct plan_handle {
    uintptr_t start;
    size_t bytes;
    size_t used;           /* bytes in it that are not free */
    size_t settled;        /* of those, bytes that stay */
    uint32_t first, count; /* of the items in it that may move */
} plan_handle;

/* A handle that could be emptied. */
typedef struct plan_candidate {
    float density; /* used, of its bytes */
    uint32_t handle;
} plan_candidate;

typedef struct plan_move {
    uint32_t from, to, before; /* items: what moves, its target, and what lies before that when it is cut */
    size_t batch;              /* targets of one batch are cut before the first of it moves */
    size_t bytes;
    uintptr_t source, target;
    bool is_slide; /* `from` into the free memory before it; the other items mean nothing */
} plan_move;

typedef struct pool_plan {
    lochi_pool *pool;
    pool_lane *lane;
    plan_item *items;
    uint32_t *lives; /* items that may move, by address */
    uint32_t *holes; /* items that are, or were, holes */
    plan_move *moves;
    plan_handle *handles;  /* by address */
    plan_candidate *order; /* the cheapest first */
    size_t items_count, lives_count, holes_count, handles_count;
    size_t moves_count, moved_bytes, joined_bytes, batches;
    uint32_t pass;
} pool_plan;

/* Enters all that there is. The caller has set pool and lane, the rest is zero. E_HOST_MEMORY; ended all the same. */
loch_status lochi_plan_look(pool_plan *plan);
void lochi_plan_end(pool_plan *plan);

/* Whether a block is free memory that the plan may use. */
bool lochi_plan_is_hole(const pool_plan *plan, const pool_block *block);
/* The first handle that ends behind an address. */
size_t lochi_plan_find_handle(const pool_plan *plan, uintptr_t address);
/* Counts memory of handles in (1) or out (-1), and what is joined by that: the handles that are empty. */
void lochi_plan_count(pool_plan *plan, uintptr_t start, size_t bytes, bool is_settled, int sign);

/* A hole that `bytes` fit in, outside of [start, end); PLAN_NONE: there is none. */
uint32_t lochi_plan_find_hole(pool_plan *plan, size_t bytes, uintptr_t start, uintptr_t end);
/* Plans to put an item at the beginning of a hole; and takes the last such move back. */
void lochi_plan_place(pool_plan *plan, uint32_t from, uint32_t into);
void lochi_plan_unplace(pool_plan *plan);
/* The place that a moved item leaves, and that was counted out, becomes a hole. */
void lochi_plan_leave(pool_plan *plan, uint32_t from);

#endif
