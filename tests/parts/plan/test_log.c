/* SPDX-License-Identifier: MIT */
/* Recordings of planned pools: lives of blocks against a plain model, and periods. */
#include "support/test.h"
#include "log.h"

#define LOG_ADDRESSES 64

static void test_lives_are_those_of_a_model(void **state)
{
    (void)state;
    test_random random = {test_seed(21)};
    plan_log log = {.count = 0};
    uint64_t owners[LOG_ADDRESSES], *freed = calloc(5000, sizeof *freed);
    assert_non_null(freed);
    memset(owners, 0xff, sizeof owners);
    while (log.count < 5000) {
        const size_t at = test_random_below(&random, LOG_ADDRESSES);
        char *address = (char *)(uintptr_t)(4096 * (at + 1));
        if (owners[at] != PLAN_NEVER && test_random_below(&random, 8)) {
            lochi_plan_log_free(&log, address, NULL);
            freed[owners[at]] = log.count;
            owners[at] = PLAN_NEVER;
            lochi_plan_log_free(&log, address, NULL); /* not in the log any more: ignored */
            continue;
        }
        if (owners[at] != PLAN_NEVER) freed[owners[at]] = log.count; /* the address is handed out again: freed unseen */
        const plan_key key = {.bytes = 1 + at};
        owners[at] = log.count;
        freed[log.count] = PLAN_NEVER;
        assert_true(lochi_plan_log_alloc(&log, &key, address));
    }
    for (size_t i = 0; i < log.count; i++)
        assert_int_equal(log.entries[i].freed, freed[i]);
    lochi_plan_log_clear(&log);
    assert_int_equal(log.count, 0);
    free(freed);
}

/* Records a sequence of sizes. */
static size_t period_of(const unsigned char *sizes, size_t count)
{
    plan_log log = {.count = 0};
    for (size_t i = 0; i < count; i++) {
        const plan_key key = {.bytes = sizes[i]};
        assert_true(lochi_plan_log_alloc(&log, &key, (char *)(uintptr_t)(4096 * (i + 1))));
    }
    const size_t period = lochi_plan_log_find_period(&log);
    lochi_plan_log_clear(&log);
    return period;
}

static void test_periods(void **state)
{
    (void)state;
    assert_int_equal(period_of((const unsigned char *)"", 0), 0);
    assert_int_equal(period_of((const unsigned char *)"ab", 2), 0);
    assert_int_equal(period_of((const unsigned char *)"aaa", 3), 1);
    assert_int_equal(period_of((const unsigned char *)"abcabcabc", 9), 3);
    assert_int_equal(period_of((const unsigned char *)"xyabcabcabcab", 13), 3);   /* after a start, in the middle */
    assert_int_equal(period_of((const unsigned char *)"aababaababaabab", 15), 5); /* runs inside a period */
    assert_int_equal(period_of((const unsigned char *)"abcabc", 6), 0);           /* twice is not enough */
    assert_int_equal(period_of((const unsigned char *)"abcdefghaaa", 11), 0);     /* less than half of it repeats */
    assert_int_equal(period_of((const unsigned char *)"abcabcabcabcabd", 15), 0); /* it has just ended */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lives_are_those_of_a_model),
        cmocka_unit_test(test_periods),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
