/* SPDX-License-Identifier: MIT */
/* Reading and writing structs of a caller that carry their size in the first member. The caller's struct may be
 * older and shorter than the library's. */
#ifndef LOCHI_SIZED_H
#define LOCHI_SIZED_H

#include "kit/fail.h"
#include <stdbool.h>
#include <string.h>

/* Copies the caller's struct over `out`. `out` has `bytes` bytes, its size set, and defaults in all other members. A
 * NULL `given` keeps the defaults. `what` names the struct in the error sentence. */
static inline loch_status lochi_sized_read(const char *what, const void *given, void *out, size_t bytes)
{
    if (!given) return LOCH_OK;
    const size_t size = *(const size_t *)given;
    if (size < sizeof size) return LOCH_FAIL(INVALID, "the size member of %s is not set", what);
    memcpy(out, given, size < bytes ? size : bytes);
    memcpy(out, &bytes, sizeof bytes);
    return LOCH_OK;
}

/* Returns whether a caller's struct is not NULL and has its size set. */
static inline bool lochi_sized_is_set(const void *out)
{
    return out && *(const size_t *)out >= sizeof(size_t);
}

/* Copies `full`, which has `bytes` bytes, into the caller's struct, up to the caller's size. The size member of the
 * caller's struct does not change. */
static inline void lochi_sized_write(void *out, const void *full, size_t bytes)
{
    const size_t size = *(const size_t *)out < bytes ? *(const size_t *)out : bytes;
    memcpy((char *)out + sizeof size, (const char *)full + sizeof size, size - sizeof size);
}

#endif
