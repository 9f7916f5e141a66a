/* SPDX-License-Identifier: MIT */
/* Parts: sets of buffers that no time connects, as the exact search wants them. */
#ifndef LOCH_PLAN_PART_H
#define LOCH_PLAN_PART_H

#include "problem.h"
#include "search.h"

/* Fills in a part from the buffers `ids` of a problem. Returns false without memory. */
bool lochi_plan_part_build(const loch_plan_problem *problem, const uint32_t *ids, uint32_t count, plan_part *out);
void lochi_plan_part_free(plan_part *part);

#endif
