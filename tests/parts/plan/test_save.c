/* SPDX-License-Identifier: MIT */
/* Files that plans are saved to: what becomes of the old file, its links and its permissions. */
#include "replaced.h"
#include <loch/plan.h>

static loch_status save(const char *path, void *user)
{
    return loch_plan_save(user, path);
}

static void a_plan_replaces_a_file_as_a_whole(void **state)
{
    (void)state;
    const loch_plan_buffer buffers[] = {{.bytes = 64, .first = 0, .last = 2}, {.bytes = 32, .first = 1, .last = 3}};
    const loch_plan_problem problem = {.size = sizeof problem, .buffers = buffers, .count = 2};
    loch_plan *plan;
    CHECK_OK(loch_plan_create(&problem, NULL, &plan));
    test_replaces_files(save, plan, "a.plan");
    CHECK_FAILS(save("/dev/full", plan), IO);
    assert_non_null(strstr(loch_error_get()->sentence, "/dev/full cannot be written"));
    loch_plan_destroy(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_plan_replaces_a_file_as_a_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
