/* SPDX-License-Identifier: MIT */
/* Finds the smallest fleet that meets a goal. */
#ifndef LOCH_TOOL_FLEET_FIND_H
#define LOCH_TOOL_FLEET_FIND_H

#include "fleet_plan.h"

/* A goal: the part `quantile` of all requests waits at most `wait_ns`, and at most the part `lost` is given up. */
typedef struct fleet_goal {
    double quantile, lost;
    uint64_t wait_ns;
} fleet_goal;

typedef enum fleet_found {
    FLEET_FOUND,
    FLEET_FOUND_NONE, /* no number of devices up to `most` meets the goal */
    FLEET_FOUND_NO_MEMORY,
    FLEET_FOUND_TOO_MANY /* more requests than a plan has room for */
} fleet_found;

/* Looks for the smallest number of devices, up to `most`, whose plan meets the goal. Doubles the number until the goal
 * is met, and bisects then: more devices are taken to be at least as good. */
fleet_found fleet_find(const fleet_demand *demand, const fleet_goal *goal, size_t most, size_t *out_devices);

#endif
