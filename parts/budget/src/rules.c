/* SPDX-License-Identifier: MIT */
/* The rules of a budget.
 *
 * T is the total, g a grant, m a minimum. A minimum is kept for its member: only T minus the sum of max(g, m) can be
 * borrowed. Below its minimum a member gets whatever no grant covers. That can be less than its minimum only after it
 * has joined while others had borrowed; then nothing can be borrowed until they have given back. */
#include "rules.h"

static uint64_t rules_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t rules_most_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t rules_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static uint64_t rules_less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t rules_weight(const budget_slot *slot)
{
    return slot->weight ? rules_least(slot->weight, BUDGET_WEIGHT_MAX) : 1;
}

budget_sums lochi_budget_rules_sum(const budget_table *table)
{
    budget_sums sums = {0};
    for (size_t i = 0; i < table->head.high; i++) {
        const budget_slot *slot = &table->slots[i];
        if (slot->kind != BUDGET_SLOT_MEMBER) continue;
        sums.granted = rules_add(sums.granted, slot->granted);
        sums.promised = rules_add(sums.promised, slot->minimum);
        sums.kept = rules_add(sums.kept, rules_most_of(slot->granted, slot->minimum));
        sums.weight += rules_weight(slot);
    }
    return sums;
}

uint64_t lochi_budget_rules_room(const budget_table *table)
{
    return rules_less(table->head.total, lochi_budget_rules_sum(table).kept);
}

/* Returns `bytes` times part / whole. Weights are bounded, so nothing overflows; part <= whole. */
static uint64_t rules_part(uint64_t bytes, uint64_t part, uint64_t whole)
{
    return bytes / whole * part + bytes % whole * part / whole;
}

static uint64_t rules_share_of(const budget_table *table, const budget_sums *sums, const budget_slot *slot)
{
    const uint64_t loose = rules_less(table->head.total, sums->promised);
    const uint64_t part = sums->weight ? rules_part(loose, rules_weight(slot), sums->weight) : 0;
    return rules_least(rules_add(slot->minimum, part), slot->limit);
}

uint64_t lochi_budget_rules_share(const budget_table *table, size_t index)
{
    const budget_sums sums = lochi_budget_rules_sum(table);
    return rules_share_of(table, &sums, &table->slots[index]);
}

/* Returns the bytes that waiting members other than `index` may still get up to their fair shares, and that are not
 * kept for them as minima. */
static uint64_t rules_owed(const budget_table *table, const budget_sums *sums, size_t index)
{
    uint64_t owed = 0;
    for (size_t i = 0; i < table->head.high; i++) {
        const budget_slot *slot = &table->slots[i];
        if (i == index || slot->kind != BUDGET_SLOT_MEMBER || !slot->wanted) continue;
        const uint64_t due = rules_least(slot->wanted, rules_share_of(table, sums, slot));
        owed = rules_add(owed, rules_less(due, rules_most_of(slot->granted, slot->minimum)));
    }
    return owed;
}

uint64_t lochi_budget_rules_most(const budget_table *table, size_t index)
{
    const budget_slot *slot = &table->slots[index];
    const budget_sums sums = lochi_budget_rules_sum(table);
    const uint64_t limit = rules_most_of(slot->limit, slot->granted);
    uint64_t most = slot->granted;
    if (most < slot->minimum) {
        most += rules_least(slot->minimum - most, rules_less(table->head.total, sums.granted));
        if (most < slot->minimum) return rules_least(most, limit);
    }
    const uint64_t room = rules_less(table->head.total, sums.kept);
    const uint64_t below = rules_least(room, rules_less(rules_share_of(table, &sums, slot), most));
    const uint64_t above = rules_less(room - below, rules_owed(table, &sums, index));
    return rules_least(rules_add(most, rules_add(below, above)), limit);
}

bool lochi_budget_rules_has_waiting(const budget_table *table, size_t index)
{
    for (size_t i = 0; i < table->head.high; i++)
        if (i != index && table->slots[i].kind == BUDGET_SLOT_MEMBER && table->slots[i].wanted) return true;
    return false;
}

uint64_t lochi_budget_rules_floor(const budget_table *table, size_t index, budget_level level)
{
    const budget_slot *slot = &table->slots[index];
    if (level == BUDGET_LEVEL_MINIMUM) return slot->minimum;
    const uint64_t share = lochi_budget_rules_share(table, index);
    if (level == BUDGET_LEVEL_SHARE && slot->granted > share) return rules_most_of(share, slot->minimum);
    return rules_most_of(slot->held, slot->minimum);
}

/* Returns the bytes that others have to give before a member can have a grant of `target`. Above its minimum, what
 * others have borrowed of promised bytes comes first. */
static uint64_t rules_missing(const budget_table *table, size_t index, uint64_t target)
{
    const budget_slot *slot = &table->slots[index];
    const uint64_t missing = rules_less(rules_least(target, slot->limit), lochi_budget_rules_most(table, index));
    if (!missing || target <= slot->minimum) return missing;
    return rules_add(missing, rules_less(lochi_budget_rules_sum(table).kept, table->head.total));
}

budget_wish lochi_budget_rules_ask(const budget_table *table, size_t index, uint64_t target, size_t other)
{
    const budget_slot *slot = &table->slots[index], *asked = &table->slots[other];
    budget_wish wish = {.level = BUDGET_LEVEL_SLACK};
    if (other == index || asked->kind != BUDGET_SLOT_MEMBER) return wish;
    if (target <= slot->minimum)
        wish.level = BUDGET_LEVEL_MINIMUM;
    else if (target <= lochi_budget_rules_share(table, index))
        wish.level = BUDGET_LEVEL_SHARE;
    const uint64_t can = rules_less(asked->granted, lochi_budget_rules_floor(table, other, wish.level));
    wish.bytes = rules_least(rules_missing(table, index, target), can);
    return wish;
}
