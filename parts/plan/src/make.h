/* SPDX-License-Identifier: MIT */
/* Makes plans: fast rounds over all buffers, then an exact search of each part that is still too high. */
#ifndef LOCH_PLAN_MAKE_H
#define LOCH_PLAN_MAKE_H

#include "plan.h"

/* Fills in offsets, height, bound, nodes and is_best of a plan. `problem` and `options` are checked. */
loch_status lochi_plan_make(const loch_plan_problem *problem, const loch_plan_options *options, loch_plan *plan);

#endif
