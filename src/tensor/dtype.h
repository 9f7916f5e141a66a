/* SPDX-License-Identifier: MIT */
/* Types of elements. */
#ifndef LOCHI_DTYPE_H
#define LOCHI_DTYPE_H

#include <loch/dtype.h>
#include <stdbool.h>

/* Tells whether `dtype` is a type of elements. */
static inline bool lochi_dtype_is_valid(loch_dtype dtype)
{
    return dtype > LOCH_DTYPE_NONE && dtype < LOCH_DTYPE_COUNT;
}

#endif
