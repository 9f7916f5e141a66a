/* SPDX-License-Identifier: MIT */
/* The tree of the exact search: its state, and the rules that cut branches off. */
#ifndef LOCH_PLAN_NODE_H
#define LOCH_PLAN_NODE_H

#include "search.h"

#define PLAN_SEARCH_ORDERS 3
#define PLAN_MEMO_BITS 18
#define PLAN_NARROW_COUNT 6 /* sections that are looked at first */

typedef struct trail_entry {
    uint32_t item;
    uint8_t is_skipped;
    int64_t low;
} trail_entry;

typedef struct memo_entry {
    uint64_t one, two;
} memo_entry;

struct plan_search {
    const plan_part *part;
    plan_poll *poll;
    void *user;
    int64_t capacity;
    uint64_t nodes, nodes_end, nodes_total; /* placements that were looked at: a node with many costs as much as many */
    int order;
    bool is_stopped;
    int64_t *low;   /* smallest offset of an unplaced item that the placed items allow */
    int64_t *bound; /* smallest offset that it can get in the end */
    uint32_t *rank; /* place in the preorder */
    double *noise;  /* factor of its width in a short search */
    bool is_noisy;
    uint32_t depth, depth_most; /* placed items, and the most of them in this search */
    double *noise_best;         /* factors of the short search that came deepest */
    uint32_t noise_depth;       /* how deep that was */
    uint32_t noise_idle;        /* short searches since then */
    uint64_t noise_count;       /* short searches so far */
    uint8_t *is_placed, *is_skipped, *is_lifted;
    int64_t *total;                     /* by section: bytes of unplaced items */
    uint32_t *next;                     /* by section: scratch */
    uint32_t *cuts;                     /* by section: unplaced items that live in it and in the next one */
    uint32_t *members_of, *members;     /* by section: its items */
    uint32_t narrow[PLAN_NARROW_COUNT]; /* sections that could not hold their items lately */
    trail_entry *trail;
    size_t trail_count, trail_capacity;
    uint32_t *arena;
    size_t arena_count, arena_capacity;
    uint64_t *salt;
    uint32_t runs;
    memo_entry *memo;
    int64_t *peak; /* by item: scratch of ranking */
    int64_t *best; /* offsets of the answer */
};

/* Ranks unplaced items that live in the sections [first, last), and searches them. Offsets are in `best` if there is a
 * plan. */
plan_answer lochi_plan_node_search(plan_search *s, const uint32_t *ids, uint32_t count, uint32_t first, uint32_t last);

/* Mixes the bits of a number. */
static inline uint64_t plan_mix(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93u;
    return x ^ x >> 32;
}

/* Adds the bytes of an item to the sections of its life, or takes them away. */
void lochi_plan_node_count(plan_search *s, const plan_item *item, int sign);

#endif
