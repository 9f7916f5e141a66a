/* SPDX-License-Identifier: MIT */
/* Plans that slide neighbours together. */
#ifndef LOCHI_POOL_SLIDE_H
#define LOCHI_POOL_SLIDE_H

#include "memory/pool/plan.h"

/* Plans one run of slides, so that `goal` bytes are free behind it. Sets joined_bytes to the bytes free there, or to
 * 0. */
void lochi_plan_slides(pool_plan *plan, size_t goal, size_t budget);
/* Plans all slides between fixed blocks that are worth their cost. Comes last, when as much as possible is to be
 * joined. */
void lochi_plan_slide_all(pool_plan *plan, size_t budget);

#endif
