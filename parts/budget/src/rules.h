/* SPDX-License-Identifier: MIT */
/* How much each member may have: pure functions of a table (rules.c). All numbers of a table are taken as they are,
 * whatever a broken process wrote; sums stop at the largest number. */
#ifndef BUDGET_RULES_H
#define BUDGET_RULES_H

#include "layout.h"
#include <stdbool.h>

/* Sums over the members of a table. */
typedef struct budget_sums {
    uint64_t granted;  /* of all grants */
    uint64_t promised; /* of all minima */
    uint64_t kept;     /* of the larger one of grant and minimum of each */
    uint64_t weight;
} budget_sums;

budget_sums lochi_budget_rules_sum(const budget_table *table);

/* Returns the bytes that can be borrowed. */
uint64_t lochi_budget_rules_room(const budget_table *table);

/* Returns the fair share of a member: its minimum, and its part of what is not promised; at most its limit. */
uint64_t lochi_budget_rules_share(const budget_table *table, size_t index);

/* Returns the largest grant that a member may have now; at least the present one. */
uint64_t lochi_budget_rules_most(const budget_table *table, size_t index);

/* Returns whether any other member waits for memory. */
bool lochi_budget_rules_has_waiting(const budget_table *table, size_t index);

/* What one member is asked for on behalf of another. */
typedef struct budget_wish {
    uint64_t bytes; /* 0: nothing */
    budget_level level;
} budget_wish;

/* Returns what to ask the member `other` for, so that the member `index` gets a grant of `target`. */
budget_wish lochi_budget_rules_ask(const budget_table *table, size_t index, uint64_t target, size_t other);

/* Returns the lowest grant to which a member goes down when it is asked at this level, whatever it holds. */
uint64_t lochi_budget_rules_floor(const budget_table *table, size_t index, budget_level level);

#endif
