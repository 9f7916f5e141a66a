/* SPDX-License-Identifier: MIT */
/* The checker: looks at offsets without regard to how they were made. */
#ifndef LOCH_PLAN_CHECK_H
#define LOCH_PLAN_CHECK_H

#include <loch/plan.h>

/* Checks that offsets are aligned and fixed where they have to be, and that no two buffers overlap. Computes the
 * height. `problem` is checked already. E_CORRUPT, E_HOST_MEMORY. */
loch_status lochi_plan_check_offsets(const loch_plan_problem *problem, const uint64_t *offsets, uint64_t *height);

#endif
