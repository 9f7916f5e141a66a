/* SPDX-License-Identifier: MIT */
/* The plan itself. */
#ifndef LOCH_PLAN_PLAN_H
#define LOCH_PLAN_PLAN_H

#include <loch/plan.h>

struct loch_plan {
    loch_plan_info info;
    uint64_t *offsets;
};

/* Makes an empty plan for `count` buffers. NULL without memory. */
loch_plan *lochi_plan_create_empty(size_t count);

#endif
