/* SPDX-License-Identifier: MIT */
/* Plans that slide neighbours together. */
#ifndef LOCHI_POOL_SLIDE_H
#define LOCHI_POOL_SLIDE_H

#include "memory/pool/plan.h"

/* Slides one run of neighbours together, so that `goal` bytes are free behind it; joined_bytes is what is free there, or 0. */
void lochi_plan_slides(pool_plan *plan, size_t goal, size_t budget);
/* Slides all that is worth it between blocks that stay. Comes last, when as much as possible is to be joined. */
void lochi_plan_slide_all(pool_plan *plan, size_t budget);

#endif
