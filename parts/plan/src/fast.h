/* SPDX-License-Identifier: MIT */
/* Fast plans: buffers are placed one after the other where there is room. Near-linear in the number of buffers. */
#ifndef LOCH_PLAN_FAST_H
#define LOCH_PLAN_FAST_H

#include <loch/plan.h>
#include <stdbool.h>

typedef struct plan_fast plan_fast;

/* Orders in which buffers are placed. */
typedef enum plan_order {
    PLAN_BY_LIFE,  /* long-lived buffers first, in classes of powers of two; large ones first in each class */
    PLAN_BY_SIZE,  /* large buffers first */
    PLAN_BY_AREA,  /* largest product of bytes and life first */
    PLAN_BY_START, /* in order of time */
    PLAN_BY_PEAK,  /* buffers that live while most bytes are in use first; large ones first among them */
    PLAN_ORDERS
} plan_order;

/* Prepares a checked problem. NULL without memory. `problem` is borrowed. Gaps are not used: a buffer keeps its bytes
 * for its whole life. */
plan_fast *lochi_plan_fast_create(const loch_plan_problem *problem);
void lochi_plan_fast_destroy(plan_fast *fast);

/* Which free place a buffer gets. */
typedef enum plan_choice {
    PLAN_LOWEST,  /* the lowest one */
    PLAN_TIGHTEST /* the smallest one between two buffers, else above all others. Quadratic, and not by life */
} plan_choice;

/* Places all buffers and returns the height. UINT64_MAX without memory. */
uint64_t lochi_plan_fast_run(plan_fast *fast, plan_order order, plan_choice choice, uint64_t *offsets);

#define PLAN_FAST_STRATEGIES 8
#define PLAN_FAST_TIGHT 3 /* further rounds once, in the manner of other allocators, after the first of each strategy */

/* Places all buffers by one of several strategies; call it with rounds 0, 1, 2 and so on. A strategy learns: buffers
 * that reached above `bound` come earlier in its next round. Returns the height; UINT64_MAX without memory. */
uint64_t lochi_plan_fast_round(plan_fast *fast, size_t round, uint64_t bound, uint64_t *offsets);

#endif
