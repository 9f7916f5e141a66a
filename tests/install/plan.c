/* SPDX-License-Identifier: MIT */
/* A program outside the tree that plans two buffers that are live at the same time. */
#include <loch/plan.h>

int main(void)
{
    const loch_plan_buffer buffers[] = {{.bytes = 64, .first = 0, .last = 3}, {.bytes = 32, .first = 2, .last = 9}};
    const loch_plan_problem problem = {.size = sizeof problem, .buffers = buffers, .count = 2};
    loch_plan_info info = {.size = sizeof info};
    loch_plan *plan;
    if (loch_plan_create(&problem, NULL, &plan) != LOCH_OK) return 1;
    const loch_status status = loch_plan_get_info(plan, &info);
    loch_plan_destroy(plan);
    return status != LOCH_OK || info.height != 96 || !info.is_best;
}
