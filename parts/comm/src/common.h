/* SPDX-License-Identifier: MIT */
/* What the files of the library share: failures, cancellation, and structs of callers. */
#ifndef COMM_COMMON_H
#define COMM_COMMON_H

#include "kit/cancel.h"
#include "kit/fail.h"
#include "kit/sized.h"
#include <loch/comm.h>

/* Copies a result into a caller's struct, whose size member says how much of it the caller knows. */
static inline loch_status comm_write_result(const void *result, size_t bytes, void *out, const char *what)
{
    if (!out) return LOCH_FAIL(INVALID, "the out pointer for %s is NULL", what);
    if (!lochi_sized_is_set(out)) return LOCH_FAIL(INVALID, "the size member of %s is not set", what);
    lochi_sized_write(out, result, bytes);
    return LOCH_OK;
}

#endif
