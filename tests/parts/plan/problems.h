/* SPDX-License-Identifier: MIT */
/* Problems for tests: seeded, small enough for brute force or large enough for the fast methods. */
#ifndef LOCH_TEST_PLAN_PROBLEMS_H
#define LOCH_TEST_PLAN_PROBLEMS_H

#include "test.h"
#include <loch/plan.h>

#define PROBLEM_GAPS_MAX 2

/* What random buffers may have. */
enum { WITH_ALIGNMENT = 1, WITH_GAPS = 2, WITH_WINDOWS = 4, WITH_FIXED = 8 };

typedef struct random_problem {
    loch_plan_problem problem;
    loch_plan_buffer *buffers;
    loch_plan_gap (*gaps)[PROBLEM_GAPS_MAX];
} random_problem;

static inline uint64_t problem_below(test_random *random, uint64_t limit)
{
    return test_random_next(random) % limit;
}

static inline void problem_add_gaps(random_problem *p, size_t index, unsigned with, test_random *random)
{
    loch_plan_buffer *buffer = &p->buffers[index];
    uint64_t at = buffer->first;
    for (uint32_t i = 0; i < PROBLEM_GAPS_MAX && at + 2 < buffer->last; i++) {
        loch_plan_gap *gap = &p->gaps[index][buffer->gaps_count++];
        gap->first = at + problem_below(random, buffer->last - at - 1);
        gap->last = gap->first + 1 + problem_below(random, buffer->last - gap->first);
        gap->window_begin = gap->window_end = 0;
        if (with & WITH_WINDOWS && problem_below(random, 2)) {
            gap->window_begin = problem_below(random, buffer->bytes);
            gap->window_end = gap->window_begin + 1 + problem_below(random, buffer->bytes - gap->window_begin);
        }
        at = gap->last;
    }
    buffer->gaps = p->gaps[index];
}

/* Makes `count` buffers in `times` moments. */
static inline random_problem problem_create(size_t count, uint64_t times, uint64_t bytes_max, unsigned with,
                                            test_random *random)
{
    random_problem p = {.buffers = calloc(count, sizeof *p.buffers), .gaps = calloc(count, sizeof *p.gaps)};
    assert_true(p.buffers && p.gaps);
    for (size_t i = 0; i < count; i++) {
        loch_plan_buffer *buffer = &p.buffers[i];
        buffer->bytes = 1 + problem_below(random, bytes_max);
        buffer->first = problem_below(random, times);
        buffer->last = buffer->first + 1 + problem_below(random, times - buffer->first);
        if (with & WITH_ALIGNMENT && problem_below(random, 2)) buffer->alignment = 1 + problem_below(random, 5);
        if (with & WITH_GAPS && problem_below(random, 2)) problem_add_gaps(&p, i, with, random);
        if (with & WITH_FIXED && problem_below(random, 4) == 0) {
            buffer->place = LOCH_PLAN_FIXED;
            buffer->offset = problem_below(random, 2 * bytes_max) * (buffer->alignment ? buffer->alignment : 1);
        }
    }
    p.problem = (loch_plan_problem){.size = sizeof p.problem, .buffers = p.buffers, .count = count};
    return p;
}

static inline void problem_free(random_problem *p)
{
    free(p->buffers);
    free(p->gaps);
}

static inline loch_plan_info plan_info(const loch_plan *plan)
{
    loch_plan_info info = {.size = sizeof info};
    CHECK_OK(loch_plan_get_info(plan, &info));
    return info;
}

#endif
