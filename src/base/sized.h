/* SPDX-License-Identifier: MIT */
/* Reading and writing a caller's struct that says its own size in its first member, so that it can be older and shorter than
 * ours. */
#ifndef LOCHI_SIZED_H
#define LOCHI_SIZED_H

#include "base/fail.h"
#include <stdbool.h>
#include <string.h>

/* Copies what the caller's struct holds over `out`, which has `bytes`, its size set and defaults elsewhere; NULL leaves the
 * defaults. `what` names it in the sentence. */
static inline loch_status lochi_sized_read(const char *what, const void *given, void *out, size_t bytes)
{
    if (!given) return LOCH_OK;
    const size_t size = *(const size_t *)given;
    if (size < sizeof size) return LOCH_FAIL(INVALID, "%s without its size set", what);
    memcpy(out, given, size < bytes ? size : bytes);
    memcpy(out, &bytes, sizeof bytes);
    return LOCH_OK;
}

/* Tells whether a caller's struct is there and its size is set. */
static inline bool lochi_sized_is_set(const void *out)
{
    return out && *(const size_t *)out >= sizeof(size_t);
}

/* Copies `full`, which has `bytes`, into the caller's struct as far as that reaches. Its size stays. */
static inline void lochi_sized_write(void *out, const void *full, size_t bytes)
{
    const size_t size = *(const size_t *)out < bytes ? *(const size_t *)out : bytes;
    memcpy((char *)out + sizeof size, (const char *)full + sizeof size, size - sizeof size);
}

#endif
