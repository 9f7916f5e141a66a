/* SPDX-License-Identifier: MIT */
/* Plans that slide neighbours together. */
#ifndef LOCHI_POOL_SLIDE_H
#define LOCHI_POOL_SLIDE_H

#include "memory/pool/moving/plan.h"

/* Returns the fewest bytes that a run of slides moves so that `goal` bytes are free behind it; SIZE_MAX if there is no
 * such run. */
size_t lochi_plan_price_slides(const pool_plan *plan, size_t goal);
/* Plans that run. Sets joined_bytes to the bytes free behind it, or to 0. */
void lochi_plan_slides(pool_plan *plan, size_t goal);
/* Plans slides alone if many blocks may move, and slides join nearly all free memory at a good price. Otherwise plans
 * nothing and returns false. */
bool lochi_plan_slide_whole(pool_plan *plan, size_t budget);
/* Plans all slides between fixed blocks that are worth their cost. Comes last, when as much as possible is to be
 * joined. */
void lochi_plan_slide_all(pool_plan *plan, size_t budget);

#endif
