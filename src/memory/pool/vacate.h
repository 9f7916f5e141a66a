/* SPDX-License-Identifier: MIT */
/* Plans that empty handles, and windows of neighbours. */
#ifndef LOCHI_POOL_VACATE_H
#define LOCHI_POOL_VACATE_H

#include "memory/pool/plan.h"

/* Empties handles until `goal` bytes are in whole ones. */
void lochi_plan_vacate(pool_plan *plan, size_t goal, size_t budget);
/* Empties one window of neighbours of at least `goal` bytes; joined_bytes is its size then, or 0. */
void lochi_plan_window(pool_plan *plan, size_t goal, size_t budget);

#endif
