/* SPDX-License-Identifier: MIT */
/* The exact search against brute force: a plan that is said to be best is best, and a capacity that is said to be too
 * small is too small. */
#include "problems.h"
#include "part.h"

#define BUFFERS_MAX 8
#define NO_HEIGHT UINT64_MAX

/* --- brute force: all orders of placing, each buffer above all that it conflicts with --- */

typedef struct brute {
    const loch_plan_problem *problem;
    bool conflicts[BUFFERS_MAX][BUFFERS_MAX];
    uint64_t tops[BUFFERS_MAX];
    bool is_placed[BUFFERS_MAX];
    uint64_t best;
} brute;

static bool brute_uses(const loch_plan_buffer *buffer, uint64_t time)
{
    if (time < buffer->first || time >= buffer->last) return false;
    for (uint32_t i = 0; i < buffer->gaps_count; i++)
        if (time >= buffer->gaps[i].first && time < buffer->gaps[i].last) return false;
    return true;
}

static void brute_place(brute *b, size_t placed, uint64_t height)
{
    if (height >= b->best) return;
    if (placed == b->problem->count) {
        b->best = height;
        return;
    }
    for (size_t i = 0; i < b->problem->count; i++) {
        const loch_plan_buffer *buffer = &b->problem->buffers[i];
        if (b->is_placed[i]) continue;
        uint64_t offset = 0;
        for (size_t j = 0; j < b->problem->count; j++)
            if (b->is_placed[j] && b->conflicts[i][j] && b->tops[j] > offset) offset = b->tops[j];
        const uint64_t alignment = buffer->alignment ? buffer->alignment : 1;
        offset = (offset + alignment - 1) / alignment * alignment;
        if (buffer->place && offset > buffer->offset) continue;
        if (buffer->place) offset = buffer->offset;
        b->is_placed[i] = true;
        b->tops[i] = offset + buffer->bytes;
        brute_place(b, placed + 1, height > b->tops[i] ? height : b->tops[i]);
        b->is_placed[i] = false;
    }
}

static uint64_t brute_height(const loch_plan_problem *problem, uint64_t times)
{
    brute b = {.problem = problem, .best = NO_HEIGHT};
    for (size_t i = 0; i < problem->count; i++)
        for (size_t j = 0; j < problem->count; j++)
            for (uint64_t time = 0; time <= times; time++)
                b.conflicts[i][j] |=
                    i != j && brute_uses(&problem->buffers[i], time) && brute_uses(&problem->buffers[j], time);
    brute_place(&b, 0, 0);
    return b.best;
}

/* Runs the search alone, without the fast methods, which find the best plan of most small problems. */
static void check_search(const loch_plan_problem *problem, uint64_t height)
{
    uint32_t ids[BUFFERS_MAX];
    int64_t offsets[BUFFERS_MAX];
    plan_part part;
    for (uint32_t i = 0; i < problem->count; i++)
        ids[i] = i;
    assert_true(lochi_plan_part_build(problem, ids, (uint32_t)problem->count, &part));
    plan_search *search = lochi_plan_search_create(&part, NULL, NULL);
    assert_non_null(search);
    assert_int_equal(lochi_plan_search_run(search, (int64_t)height, UINT64_MAX, offsets), PLAN_FOUND);
    for (size_t i = 0; i < problem->count; i++)
        assert_true(offsets[i] >= 0 && (uint64_t)offsets[i] + problem->buffers[i].bytes <= height);
    assert_int_equal(lochi_plan_search_run(search, (int64_t)height - 1, UINT64_MAX, offsets), PLAN_IMPOSSIBLE);
    lochi_plan_search_destroy(search);
    lochi_plan_part_free(&part);
}

static void check_against_brute_force(unsigned with, size_t rounds, uint64_t bytes_max)
{
    test_random random = {test_seed(with + 1)};
    for (size_t round = 0; round < rounds; round++) {
        const uint64_t times = 2 + problem_below(&random, 6);
        random_problem p = problem_create(1 + problem_below(&random, BUFFERS_MAX), times, bytes_max, with, &random);
        const uint64_t height = brute_height(&p.problem, times);
        loch_plan *plan = TEST_UNTOUCHED;
        if (height == NO_HEIGHT) { /* two fixed buffers overlap */
            CHECK_FAILS(loch_plan_create(&p.problem, NULL, &plan), INVALID);
            assert_null(plan);
            problem_free(&p);
            continue;
        }
        check_search(&p.problem, height);
        CHECK_OK(loch_plan_create(&p.problem, NULL, &plan));
        CHECK_OK(loch_plan_check(plan, &p.problem));
        const loch_plan_info info = plan_info(plan);
        assert_int_equal(info.height, height);
        assert_int_equal(info.is_best, 1);
        loch_plan_destroy(plan);

        loch_plan_options options = {.size = sizeof options, .capacity = height};
        CHECK_OK(loch_plan_create(&p.problem, &options, &plan));
        CHECK_OK(loch_plan_check(plan, &p.problem));
        assert_int_equal(plan_info(plan).height, height);
        loch_plan_destroy(plan);
        options.capacity = height - 1;
        if (options.capacity) CHECK_FAILS(loch_plan_create(&p.problem, &options, &plan), LIMIT);
        problem_free(&p);
    }
}

static void test_plain_buffers(void **state)
{
    (void)state;
    check_against_brute_force(0, 2000, 9);
    check_against_brute_force(0, 500, 3); /* many twins */
}

static void test_alignment(void **state)
{
    (void)state;
    check_against_brute_force(WITH_ALIGNMENT, 1500, 9);
}

static void test_gaps(void **state)
{
    (void)state;
    check_against_brute_force(WITH_GAPS, 1500, 9);
}

static void test_fixed_offsets(void **state)
{
    (void)state;
    check_against_brute_force(WITH_FIXED, 1500, 9);
}

static void test_all_together(void **state)
{
    (void)state;
    check_against_brute_force(WITH_ALIGNMENT | WITH_GAPS | WITH_FIXED, 2000, 9);
}

/* Gaps that leave bytes in use: the plan is right, and it is said to be best only at the bound of live bytes. */
static void test_windows(void **state)
{
    (void)state;
    test_random random = {test_seed(77)};
    for (size_t round = 0; round < 1000; round++) {
        random_problem p =
            problem_create(1 + problem_below(&random, 9), 8, 9, WITH_GAPS | WITH_WINDOWS | WITH_ALIGNMENT, &random);
        const loch_plan_options options = {.size = sizeof options, .time_limit_ns = 20000000};
        loch_plan *plan;
        CHECK_OK(loch_plan_create(&p.problem, &options, &plan));
        CHECK_OK(loch_plan_check(plan, &p.problem));
        loch_plan_destroy(plan);
        problem_free(&p);
    }
}

/* A buffer that lies in the gap of another one takes no room of its own. */
static void test_a_gap_is_used(void **state)
{
    (void)state;
    const loch_plan_gap gap = {.first = 3, .last = 6},
                        half = {.first = 3, .last = 6, .window_begin = 0, .window_end = 40};
    loch_plan_buffer buffers[] = {{.bytes = 100, .first = 0, .last = 9, .gaps = &gap, .gaps_count = 1},
                                  {.bytes = 100, .first = 3, .last = 6}};
    const loch_plan_problem problem = {.size = sizeof problem, .buffers = buffers, .count = 2};
    loch_plan *plan;
    CHECK_OK(loch_plan_create(&problem, NULL, &plan));
    assert_int_equal(plan_info(plan).height, 100);
    assert_int_equal(plan_info(plan).is_best, 1);
    loch_plan_destroy(plan);
    buffers[0].gaps = &half; /* 40 of its bytes stay in use: the other one lies above them */
    CHECK_OK(loch_plan_create(&problem, NULL, &plan));
    CHECK_OK(loch_plan_check(plan, &problem));
    assert_int_equal(plan_info(plan).height, 140);
    assert_int_equal(plan_info(plan).is_best, 1);
    loch_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_buffers), cmocka_unit_test(test_alignment),    cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_fixed_offsets), cmocka_unit_test(test_all_together), cmocka_unit_test(test_windows),
        cmocka_unit_test(test_a_gap_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
