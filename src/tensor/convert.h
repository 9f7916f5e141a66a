/* SPDX-License-Identifier: MIT */
/* The inside of loch_convert: looked up once, run over many pieces.
 *
 * Four types are hubs: f32, f64, i64 and u64. Loops go from each hub to every type, and from every type to a hub that holds
 * all of its numbers. A pair of types has its own loop, or goes through a hub in blocks that stay in the first cache; that
 * step into the hub is exact, so that numbers are rounded once. */
#ifndef LOCHI_CONVERT_H
#define LOCHI_CONVERT_H

#include <loch/dtype.h>
#include <stdbool.h>

/* Converts `count` elements that lie side by side, at any alignment. The ranges are the same address, for types of one size,
 * or do not overlap. */
typedef void lochi_convert_step(void *to, const void *from, size_t count);

typedef struct lochi_converter {
    lochi_convert_step *first;   /* never NULL */
    lochi_convert_step *second;  /* from the hub; NULL when the first does it all */
    size_t to_bytes, from_bytes; /* of an element */
} lochi_converter;

/* How to convert between two types, the same type too. Both are types (lochi_dtype_is_valid), and so is `overflow`. Never
 * fails. */
lochi_converter lochi_convert_find(loch_dtype to, loch_dtype from, loch_overflow overflow);

/* With both steps, in blocks. */
void lochi_convert_through_hub(const lochi_converter *converter, void *to, const void *from, size_t count);

/* Converts without checks, under the conditions of lochi_convert_step. A `count` of 0 may come with NULL. */
static inline void lochi_convert_run(const lochi_converter *converter, void *to, const void *from, size_t count)
{
    if (converter->second)
        lochi_convert_through_hub(converter, to, from, count);
    else
        converter->first(to, from, count);
}

static inline bool lochi_dtype_is_valid(loch_dtype dtype)
{
    return dtype > LOCH_DTYPE_NONE && dtype < LOCH_DTYPE_COUNT;
}

#endif
