/* SPDX-License-Identifier: MIT */
/* Types of elements: what drivers and tensors both need to know of them. */
#ifndef LOCHI_DTYPE_H
#define LOCHI_DTYPE_H

#include <loch/dtype.h>
#include <stdbool.h>

/* Tells whether `dtype` is a type of elements. */
static inline bool lochi_dtype_is_valid(loch_dtype dtype)
{
    return dtype > LOCH_DTYPE_NONE && dtype < LOCH_DTYPE_COUNT;
}

/* Returns the size of one element in bytes; 0 for a value that is not a type. */
static inline size_t lochi_dtype_bytes(loch_dtype dtype)
{
    static const unsigned char sizes[LOCH_DTYPE_COUNT] = {
#define DTYPE_SIZE(suffix, name, bytes) [LOCH_##suffix] = (bytes),
        LOCH_DTYPE_LIST(DTYPE_SIZE)
#undef DTYPE_SIZE
    };
    return lochi_dtype_is_valid(dtype) ? sizes[dtype] : 0;
}

#endif
