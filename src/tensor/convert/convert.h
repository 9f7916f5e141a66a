/* SPDX-License-Identifier: MIT */
/* The inside of loch_convert: looked up once, run over many pieces.
 *
 * Four types are hubs: f32, f64, i64 and u64. Loops go from each hub to every type, and from every type to a hub that holds
 * all of its numbers. A pair of types has its own loop, or goes through a hub in blocks that stay in the first cache; that
 * step into the hub is exact, so that numbers are rounded once. */
#ifndef LOCHI_CONVERT_H
#define LOCHI_CONVERT_H

#include "tensor/convert/table.h"

typedef struct lochi_converter {
    lochi_convert_step *first;   /* never NULL */
    lochi_convert_step *second;  /* from the hub; NULL when the first does it all */
    size_t to_bytes, from_bytes; /* of an element */
} lochi_converter;

/* Finds how to convert between two types, which may be one. Both are types (tensor/dtype.h), and so is `overflow`. Never
 * fails. */
lochi_converter lochi_convert_find(loch_dtype to, loch_dtype from, loch_overflow overflow);

/* Finds what lochi_convert_find does with a choice: `native` goes before the portable loops, and may be NULL. */
lochi_converter lochi_convert_find_in(const lochi_convert_table *native, loch_dtype to, loch_dtype from,
                                      loch_overflow overflow);

/* Converts by both steps, in blocks. */
void lochi_convert_through_hub(const lochi_converter *converter, void *to, const void *from, size_t count);

/* Converts without checks, under the conditions of lochi_convert_step. A `count` of 0 may come with NULL. */
static inline void lochi_convert_run(const lochi_converter *converter, void *to, const void *from, size_t count)
{
    if (converter->second)
        lochi_convert_through_hub(converter, to, from, count);
    else
        converter->first(to, from, count);
}

#endif
