/* SPDX-License-Identifier: MIT */
/* The fast methods: plans are right for many buffers, and near the bound for programs that repeat themselves. */
#include "problems.h"
#include "check.h"
#include "fast.h"
#include "problem.h"

static void test_every_order_is_right(void **state)
{
    (void)state;
    test_random random = {test_seed(11)};
    for (size_t round = 0; round < 40; round++) {
        random_problem p = problem_create(1 + problem_below(&random, 400), 2 + problem_below(&random, 600), 5000,
                                          round % 2 ? WITH_ALIGNMENT : WITH_GAPS | WITH_WINDOWS, &random);
        uint64_t *offsets = calloc(p.problem.count, sizeof *offsets), height, bound = 0;
        plan_fast *fast = lochi_plan_fast_create(&p.problem);
        assert_true(offsets && fast && lochi_plan_problem_bound(&p.problem, &bound));
        for (int order = 0; order < PLAN_ORDERS; order++) {
            uint64_t found = lochi_plan_fast_run(fast, (plan_order)order, PLAN_LOWEST, offsets);
            CHECK_OK(lochi_plan_check_offsets(&p.problem, offsets, &height));
            assert_true(found == height && height >= bound);
            if (order == PLAN_BY_LIFE) continue;
            found = lochi_plan_fast_run(fast, (plan_order)order, PLAN_TIGHTEST, offsets);
            CHECK_OK(lochi_plan_check_offsets(&p.problem, offsets, &height));
            assert_true(found == height && height >= bound);
        }
        for (size_t i = 0; i < 3 * PLAN_FAST_STRATEGIES; i++) {
            const uint64_t found = lochi_plan_fast_round(fast, i, bound, offsets);
            CHECK_OK(lochi_plan_check_offsets(&p.problem, offsets, &height));
            assert_true(found == height && height >= bound);
        }
        lochi_plan_fast_destroy(fast);
        free(offsets);
        problem_free(&p);
    }
}

/* A program with layers: weights for ever, activations from the way there to the way back, short-lived scratch. */
static void test_steps_of_training_are_near_the_bound(void **state)
{
    (void)state;
    enum { STEPS = 60, LAYERS = 40, EACH = 5, COUNT = LAYERS + STEPS * LAYERS * EACH };
    test_random random = {test_seed(12)};
    loch_plan_buffer *buffers = calloc(COUNT, sizeof *buffers);
    assert_non_null(buffers);
    size_t at = 0;
    const uint64_t step_time = 1000;
    for (size_t i = 0; i < LAYERS; i++)
        buffers[at++] = (loch_plan_buffer){.bytes = 4096 * (1 + i % 3), .first = 0, .last = STEPS * step_time};
    for (uint64_t step = 0; step < STEPS; step++)
        for (uint64_t i = 0; i < LAYERS; i++)
            for (uint64_t j = 0; j < EACH; j++) {
                const uint64_t start = step * step_time + 10 * i + j, back = step * step_time + 990 - 10 * i;
                const uint64_t bytes = 512 * (1 + problem_below(&random, 60));
                buffers[at++] =
                    (loch_plan_buffer){.bytes = bytes, .first = start, .last = j < 2 ? back : start + 3 + j};
            }
    const loch_plan_problem problem = {.size = sizeof problem, .buffers = buffers, .count = at};
    const loch_plan_options fast = {.size = sizeof fast, .method = LOCH_PLAN_FAST},
                            greedy = {.size = sizeof greedy, .method = LOCH_PLAN_GREEDY};
    loch_plan *plan;
    CHECK_OK(loch_plan_create(&problem, &greedy, &plan));
    CHECK_OK(loch_plan_check(plan, &problem));
    const uint64_t height = plan_info(plan).height;
    loch_plan_destroy(plan);
    CHECK_OK(loch_plan_create(&problem, &fast, &plan));
    CHECK_OK(loch_plan_check(plan, &problem));
    const loch_plan_info info = plan_info(plan);
    assert_true(info.height <= height);
    assert_true((double)info.height <= 1.02 * (double)info.lower_bound);
    loch_plan_destroy(plan);
    free(buffers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_order_is_right),
        cmocka_unit_test(test_steps_of_training_are_near_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
