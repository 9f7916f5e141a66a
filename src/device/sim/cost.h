/* SPDX-License-Identifier: MIT */
/* Modelled costs of driver calls of simulated devices (cost.c). */
#ifndef LOCHI_SIM_COST_H
#define LOCHI_SIM_COST_H

#include <loch/driver.h>

typedef struct lochi_sim_point {
    size_t bytes;
    uint64_t ns;
} lochi_sim_point;

#define LOCHI_SIM_POINTS_MAX 16

typedef struct lochi_sim_curve {
    size_t count;
    lochi_sim_point points[LOCHI_SIM_POINTS_MAX];
} lochi_sim_curve;

typedef struct lochi_sim_costs {
    lochi_sim_curve curves[LOCH_CALL_COUNT];
} lochi_sim_costs;

/* Writes the built-in costs. */
void lochi_sim_costs_default(lochi_sim_costs *costs);

/* Replaces the curves that a file names. E_INVALID: the sentence names file and line. */
loch_status lochi_sim_costs_read(lochi_sim_costs *costs, const char *path);

/* Returns the cost of one call in nanoseconds. */
uint64_t lochi_sim_cost(const lochi_sim_costs *costs, loch_driver_call call, size_t bytes);

#endif
