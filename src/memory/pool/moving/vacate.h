/* SPDX-License-Identifier: MIT */
/* Plans that empty handles, or windows of neighbours. */
#ifndef LOCHI_POOL_VACATE_H
#define LOCHI_POOL_VACATE_H

#include "memory/pool/moving/plan.h"

/* Empties handles until `goal` bytes are free in whole handles. */
void lochi_plan_vacate(pool_plan *plan, size_t goal, size_t budget);
/* Empties one window of neighbours of at least `goal` bytes, and sets joined_bytes to its size. Plans nothing and
 * returns false if there is no such window. */
bool lochi_plan_window(pool_plan *plan, size_t goal, size_t budget);

#endif
