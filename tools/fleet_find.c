/* SPDX-License-Identifier: MIT */
#include "fleet_find.h"
#include <stdlib.h>

/* Plans a fleet, and tells whether it meets the goal. */
static fleet_found find_try(const fleet_demand *demand, const fleet_goal *goal, size_t devices, bool *out_is_met)
{
    fleet_plan plan;
    const fleet_planned planned = fleet_plan_make(&plan, demand, devices);
    fleet_found found = FLEET_FOUND;
    uint64_t *waits = NULL;
    *out_is_met = false;
    if (planned == FLEET_TOO_MANY) {
        found = FLEET_FOUND_TOO_MANY;
    } else if (planned != FLEET_PLANNED || !(waits = malloc((plan.requests_count + 1) * sizeof *waits))) {
        found = FLEET_FOUND_NO_MEMORY;
    } else {
        const double lost = plan.requests_count ? (double)plan.given_up / (double)plan.requests_count : 0;
        *out_is_met = fleet_plan_wait(&plan, goal->quantile, waits) <= goal->wait_ns && lost <= goal->lost;
    }
    free(waits);
    fleet_plan_free(&plan);
    return found;
}

fleet_found fleet_find(const fleet_demand *demand, const fleet_goal *goal, size_t most, size_t *out_devices)
{
    size_t little = 0, enough = 1; /* `little` devices do not meet the goal */
    bool is_met;
    fleet_found found;
    while ((found = find_try(demand, goal, enough, &is_met)) == FLEET_FOUND && !is_met) {
        if (enough >= most) return FLEET_FOUND_NONE;
        little = enough;
        enough = enough < most / 2 ? 2 * enough : most;
    }
    while (found == FLEET_FOUND && enough > little + 1) {
        const size_t middle = little + (enough - little) / 2;
        found = find_try(demand, goal, middle, &is_met);
        if (is_met)
            enough = middle;
        else
            little = middle;
    }
    *out_devices = enough;
    return found;
}
