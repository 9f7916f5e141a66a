/* SPDX-License-Identifier: MIT */
/* The rules against a model that knows nothing of formulas: it hands out one byte after the other, and asks before each
 * whether all promises still hold. Tables are random and small, so that every corner is met. */
#include "rules.h"
#include "test.h"

#define ROUNDS 40000
#define MEMBERS 5

typedef struct model {
    uint64_t total;
    size_t count;
    bool is_there[MEMBERS];
    uint64_t minimum[MEMBERS], limit[MEMBERS], granted[MEMBERS], wanted[MEMBERS], weight[MEMBERS];
} model;

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t model_share(const model *m, size_t i)
{
    uint64_t promised = 0, weights = 0;
    for (size_t j = 0; j < m->count; j++) {
        if (!m->is_there[j]) continue;
        promised += m->minimum[j];
        weights += m->weight[j];
    }
    const uint64_t loose = m->total > promised ? m->total - promised : 0;
    assert_true(weights > 0);
    return weights ? smaller(m->minimum[i] + loose * m->weight[i] / weights, m->limit[i]) : 0;
}

/* Whether the member may have one byte more. */
static bool model_may(const model *m, size_t i, uint64_t share)
{
    uint64_t granted = 0, kept = 0, owed = 0;
    if (m->granted[i] >= m->limit[i]) return false;
    for (size_t j = 0; j < m->count; j++) {
        if (!m->is_there[j]) continue;
        const uint64_t g = m->granted[j] + (j == i);
        granted += g;
        kept += larger(g, m->minimum[j]);
        if (j != i && m->wanted[j]) {
            const uint64_t due = smaller(m->wanted[j], model_share(m, j)), has = larger(g, m->minimum[j]);
            owed += due > has ? due - has : 0;
        }
    }
    if (m->granted[i] < m->minimum[i]) return granted <= m->total;
    if (m->granted[i] < share) return kept <= m->total;
    return kept + owed <= m->total;
}

static uint64_t model_most(const model *given, size_t i)
{
    model m = *given;
    const uint64_t share = model_share(&m, i);
    while (model_may(&m, i, share))
        m.granted[i]++;
    return m.granted[i];
}

static void model_to_table(const model *m, budget_table *table)
{
    memset(table, 0, sizeof *table);
    table->head.total = m->total;
    table->head.high = (uint32_t)m->count;
    for (size_t i = 0; i < m->count; i++) {
        budget_slot *slot = &table->slots[i];
        slot->kind = m->is_there[i] ? BUDGET_SLOT_MEMBER : BUDGET_SLOT_FREE;
        slot->minimum = m->minimum[i];
        slot->limit = m->limit[i];
        slot->granted = m->granted[i];
        slot->held = m->granted[i] - m->granted[i] / 3;
        slot->wanted = m->wanted[i];
        slot->weight = (uint32_t)m->weight[i];
    }
}

/* A table in which the sums of grants and of minima fit the total, as joins and grants leave it. */
static model model_random(test_random *random)
{
    model m = {.total = 1 + test_random_below(random, 60), .count = 1 + test_random_below(random, MEMBERS)};
    uint64_t promised = 0, granted = 0;
    for (size_t i = 0; i < m.count; i++) {
        m.is_there[i] = test_random_below(random, 8) != 0;
        m.limit[i] = 1 + test_random_below(random, m.total);
        m.weight[i] = 1 + test_random_below(random, 3);
        m.minimum[i] = smaller(test_random_below(random, m.total - promised + 1), m.limit[i]);
        if (test_random_below(random, 3) == 0) m.minimum[i] = 0;
        m.granted[i] = smaller(test_random_below(random, m.total - granted + 1), m.limit[i]);
        if (test_random_below(random, 3) == 0) m.wanted[i] = 1 + test_random_below(random, m.total + 5);
        if (!m.is_there[i]) continue;
        promised += m.minimum[i];
        granted += m.granted[i];
    }
    return m;
}

static void most_is_what_byte_by_byte_gives(void **state)
{
    (void)state;
    test_random random = {test_seed(11)};
    static budget_table table;
    for (size_t round = 0; round < ROUNDS; round++) {
        const model m = model_random(&random);
        model_to_table(&m, &table);
        for (size_t i = 0; i < m.count; i++) {
            if (!m.is_there[i]) continue;
            assert_int_equal(lochi_budget_rules_share(&table, i), model_share(&m, i));
            if (lochi_budget_rules_most(&table, i) != model_most(&m, i))
                fail_msg("round %zu, member %zu: %llu, not %llu", round, i,
                         (unsigned long long)lochi_budget_rules_most(&table, i), (unsigned long long)model_most(&m, i));
        }
    }
}

/* Whatever order grants and returns come in, grants fit the total, and a member that has never been above what it may
 * have finds its minimum. */
static void sequences_keep_the_promises(void **state)
{
    (void)state;
    test_random random = {test_seed(13)};
    static budget_table table;
    for (size_t sequence = 0; sequence < 400; sequence++) {
        model m = {.total = 20 + test_random_below(&random, 60), .count = MEMBERS};
        for (size_t step = 0; step < 120; step++) {
            const size_t i = test_random_below(&random, MEMBERS);
            uint64_t promised = 0, granted = 0, kept = 0;
            for (size_t j = 0; j < MEMBERS; j++)
                if (m.is_there[j]) promised += m.minimum[j];
            if (!m.is_there[i]) { /* joins */
                m.minimum[i] = test_random_below(&random, (m.total - promised) / 2 + 1);
                m.limit[i] = m.minimum[i] + test_random_below(&random, m.total - m.minimum[i] + 1);
                m.weight[i] = 1 + test_random_below(&random, 4);
                m.granted[i] = m.wanted[i] = 0;
                m.is_there[i] = true;
            } else if (test_random_below(&random, 12) == 0) {
                m.is_there[i] = false; /* leaves, or dies */
            } else if (test_random_below(&random, 3) == 0) {
                m.granted[i] -= test_random_below(&random, m.granted[i] + 1);
            } else {
                model_to_table(&m, &table);
                const uint64_t most = lochi_budget_rules_most(&table, i);
                assert_true(most >= m.granted[i] && most <= larger(m.limit[i], m.granted[i]));
                m.granted[i] += test_random_below(&random, most - m.granted[i] + 1);
                m.wanted[i] = test_random_below(&random, 4) ? 0 : m.granted[i] + test_random_below(&random, 10);
            }
            for (size_t j = 0; j < MEMBERS; j++) {
                if (!m.is_there[j]) continue;
                granted += m.granted[j];
                kept += larger(m.granted[j], m.minimum[j]);
            }
            assert_true(granted <= m.total);
            if (kept > m.total) continue; /* a member joined while others had borrowed: it waits for them */
            model_to_table(&m, &table);
            for (size_t j = 0; j < MEMBERS; j++) /* every minimum can be had at once */
                if (m.is_there[j]) assert_true(lochi_budget_rules_most(&table, j) >= m.minimum[j]);
        }
    }
}

/* If everybody gives what the rules ask for, a request within the minimum is served; one within the fair share too. */
static void what_is_asked_for_is_enough(void **state)
{
    (void)state;
    test_random random = {test_seed(17)};
    static budget_table table;
    size_t served = 0;
    for (size_t round = 0; round < ROUNDS; round++) {
        model m = model_random(&random);
        const size_t i = test_random_below(&random, m.count);
        if (!m.is_there[i]) continue;
        for (size_t j = 0; j < m.count; j++)
            m.wanted[j] = 0;
        const uint64_t share = model_share(&m, i);
        const bool is_minimum = test_random_below(&random, 2) != 0;
        const uint64_t target = is_minimum ? m.minimum[i] : share;
        model_to_table(&m, &table);
        if (target <= lochi_budget_rules_most(&table, i)) continue;
        model after = m;
        for (size_t j = 0; j < m.count; j++) {
            const budget_wish wish = lochi_budget_rules_ask(&table, i, target, j);
            if (!wish.bytes) continue;
            assert_true(j != i && m.is_there[j]);
            assert_true(wish.level == (target <= m.minimum[i] ? BUDGET_LEVEL_MINIMUM : BUDGET_LEVEL_SHARE));
            const uint64_t floor = lochi_budget_rules_floor(&table, j, wish.level);
            assert_true(floor >= m.minimum[j] && wish.bytes <= m.granted[j] - floor);
            after.granted[j] -= wish.bytes;
        }
        model_to_table(&after, &table);
        if (lochi_budget_rules_most(&table, i) < target)
            fail_msg("round %zu: member %zu gets %llu of %llu", round, i,
                     (unsigned long long)lochi_budget_rules_most(&table, i), (unsigned long long)target);
        served++;
    }
    assert_true(served > 500);
}

/* Numbers that a broken process wrote give numbers, and nothing else. */
static void any_table_is_read(void **state)
{
    (void)state;
    test_random random = {test_seed(19)};
    static budget_table table;
    for (size_t round = 0; round < 2000; round++) {
        uint64_t *words = (uint64_t *)&table;
        for (size_t i = 0; i < sizeof table / sizeof *words; i++)
            words[i] = test_random_below(&random, 3) ? test_random_next(&random) : UINT64_MAX;
        table.head.high = 1 + (uint32_t)test_random_below(&random, BUDGET_SLOTS);
        for (size_t i = 0; i < table.head.high; i++)
            table.slots[i].kind = (uint32_t)test_random_below(&random, 4);
        for (size_t i = 0; i < table.head.high; i += 17) {
            assert_true(lochi_budget_rules_most(&table, i) >= table.slots[i].granted);
            (void)lochi_budget_rules_ask(&table, i, test_random_next(&random), (i + 1) % table.head.high);
            (void)lochi_budget_rules_floor(&table, i, (budget_level)test_random_below(&random, 5));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(most_is_what_byte_by_byte_gives),
        cmocka_unit_test(sequences_keep_the_promises),
        cmocka_unit_test(what_is_asked_for_is_enough),
        cmocka_unit_test(any_table_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
