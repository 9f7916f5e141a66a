/* SPDX-License-Identifier: MIT */
/* Exact search: finds a plan of one part that fits a capacity, or proves that there is none. */
#ifndef LOCH_PLAN_SEARCH_H
#define LOCH_PLAN_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One stretch of sections in which a buffer uses the bytes [low, high) of itself. */
typedef struct plan_span {
    uint32_t first, last; /* sections, half-open */
    int64_t low, high;
} plan_span;

/* One buffer that the search places. */
typedef struct plan_item {
    int64_t bytes, alignment;
    int64_t fixed; /* offset, or -1 */
    double area, width;
    uint32_t first, last;        /* sections of its life, half-open */
    uint32_t spans, spans_count; /* its stretches, in plan_part.spans */
    size_t rivals;               /* first of the items that it conflicts with, in plan_part.rivals */
    uint32_t rivals_count;
    bool is_plain; /* it has no gaps */
    uint32_t twin; /* item before it that is equal in all respects, or UINT32_MAX */
} plan_item;

/* A buffer that conflicts with another one. */
typedef struct plan_rival {
    uint32_t item;
    int64_t rise; /* distance from the start of the other to `item`, if `item` lies above it */
    int64_t fall; /* distance from the start of `item` to the other, if `item` lies below it */
} plan_rival;

/* Buffers whose lives are connected, and the sections of time between which the set of live buffers changes. */
typedef struct plan_part {
    uint32_t count, sections;
    size_t rivals_count;
    bool has_windows; /* some gap leaves bytes in use: an answer PLAN_IMPOSSIBLE proves nothing */
    plan_item *items;
    plan_span *spans;
    plan_rival *rivals;
} plan_part;

typedef enum plan_answer { PLAN_FOUND, PLAN_IMPOSSIBLE, PLAN_STOPPED } plan_answer;

/* Called now and then; returns true to end the search. */
typedef bool plan_poll(void *user);

typedef struct plan_search plan_search;

/* Prepares the search of a part. `part` is borrowed. NULL without memory. */
plan_search *lochi_plan_search_create(const plan_part *part, plan_poll *poll, void *user);
void lochi_plan_search_destroy(plan_search *search);

/* Looks for offsets with a height of at most `capacity`. Ends with PLAN_STOPPED after `nodes_max` nodes. */
plan_answer lochi_plan_search_run(plan_search *search, int64_t capacity, uint64_t nodes_max, int64_t *offsets);

/* Nodes that the search has visited so far. */
uint64_t lochi_plan_search_get_nodes(const plan_search *search);

#endif
