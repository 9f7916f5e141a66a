/* SPDX-License-Identifier: MIT */
/* Pictures of plans. */
#ifndef LOCH_TOOL_PLAN_PICTURE_H
#define LOCH_TOOL_PLAN_PICTURE_H

#include <loch/plan.h>

/* Writes a plan as SVG: time to the right, offsets upwards. `capacity` is drawn as a line; 0 for none. Returns
 * TOOL_DONE, or TOOL_FAILED after a line on standard error. */
int plan_picture_save(const loch_plan_problem *problem, const loch_plan *plan, uint64_t capacity, const char *path);

#endif
