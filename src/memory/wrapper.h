/* SPDX-License-Identifier: MIT */
/* What the library's wrappers share. */
#ifndef LOCHI_WRAPPER_H
#define LOCHI_WRAPPER_H

#include "base/fail.h"
#include "memory/allocator.h"
#include <string.h>

/* Starts a new segment in the wrapped allocator too: for a wrapper with figures of its own. The caller holds the lock
 * of the allocator around the wrapper, whose rank is lower. */
static inline void lochi_wrapper_new_segment(loch_allocator *wrapped)
{
    lochi_lock_take(&wrapped->lock);
    const loch_status status = lochi_allocator_end_segment(wrapped);
    (void)status; /* figures only */
    lochi_lock_drop(&wrapped->lock);
}

/* Reads options whose first member is their size into `out`, which has `bytes` of zeros; NULL is all defaults. */
static inline loch_status lochi_options_read(const char *what, const void *given, void *out, size_t bytes)
{
    if (!given) return LOCH_OK;
    const size_t size = *(const size_t *)given;
    if (size < sizeof size) return LOCH_FAIL(INVALID, "%s options need their size set", what);
    memcpy(out, given, size < bytes ? size : bytes);
    return LOCH_OK;
}

#endif
