/* SPDX-License-Identifier: MIT */
/* The implementation of loch_convert: looked up once, run over many pieces.
 *
 * Four types are hubs: f32, f64, i64 and u64. There are loops from each hub to every type, and from every type to a hub
 * that can hold all of its values. A pair of types either has its own loop, or goes through a hub in blocks that stay
 * in the L1 cache. The step into the hub is exact, so values are rounded only once. */
#ifndef LOCHI_CONVERT_H
#define LOCHI_CONVERT_H

#include "tensor/convert/table.h"

typedef struct lochi_converter {
    lochi_convert_step *first;   /* never NULL */
    lochi_convert_step *second;  /* from the hub; NULL if the first step is the whole conversion */
    size_t to_bytes, from_bytes; /* of an element */
} lochi_converter;

/* Finds the conversion between two types, which may be equal. Both types (base/dtype.h) and `overflow` are valid.
 * Never fails. */
lochi_converter lochi_convert_find(loch_dtype to, loch_dtype from, loch_overflow overflow);

/* Finds a conversion as lochi_convert_find does, with the given table. Loops of `native` are preferred to portable
 * ones; it may be NULL. */
lochi_converter lochi_convert_find_in(const lochi_convert_table *native, loch_dtype to, loch_dtype from,
                                      loch_overflow overflow);

/* Converts in two steps, in blocks. */
void lochi_convert_through_hub(const lochi_converter *converter, void *to, const void *from, size_t count);

/* Converts without checks, under the conditions of lochi_convert_step. If `count` is 0, the addresses may be NULL. */
static inline void lochi_convert_run(const lochi_converter *converter, void *to, const void *from, size_t count)
{
    if (converter->second)
        lochi_convert_through_hub(converter, to, from, count);
    else
        converter->first(to, from, count);
}

#endif
