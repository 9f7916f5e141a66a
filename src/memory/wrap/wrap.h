/* SPDX-License-Identifier: MIT */
/* What the library's wrappers share. */
#ifndef LOCHI_WRAP_H
#define LOCHI_WRAP_H

#include "kit/sized.h"
#include "memory/allocator.h"
#include "memory/grow.h"

/* Starts a new segment in the wrapped allocator too, for a wrapper with statistics of its own. The caller holds the
 * lock of the allocator around the wrapper, whose rank is lower. */
static inline void lochi_wrapper_new_segment(loch_allocator *wrapped)
{
    lochi_lock_take(&wrapped->lock);
    const loch_status status = lochi_allocator_end_segment(wrapped);
    (void)status; /* affects statistics only */
    lochi_lock_drop(&wrapped->lock);
}

#endif
