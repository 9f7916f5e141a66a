/* SPDX-License-Identifier: MIT */
/* Copies on the host between two layouts of one shape.
 *
 * Both layouts are brought into one order first: axes of size 1 go, axes along which the target runs backwards are turned,
 * the others are sorted by the target's strides, and axes that lie behind each other in both become one. So most copies
 * become rows, or tiles of a transpose. */
#ifndef LOCHI_STRIDED_H
#define LOCHI_STRIDED_H

#include "tensor/convert/convert.h"
#include "tensor/layout.h"

/* Two layouts of one shape, in order, the longest strides of the target first. At least one axis; the target's strides are
 * not negative. */
typedef struct lochi_strided {
    size_t to_bytes, from_bytes; /* of an element */
    size_t axes;
    size_t sizes[LOCH_DIMENSIONS_MAX];
    ptrdiff_t to[LOCH_DIMENSIONS_MAX], from[LOCH_DIMENSIONS_MAX]; /* strides in bytes */
    ptrdiff_t to_start, from_start; /* bytes from the element with all indices 0 to the first in this order */
} lochi_strided;

/* Brings two layouts of one shape, with elements, into order. The target's elements do not share places. */
void lochi_strided_make(const lochi_layout *to, const lochi_layout *from, lochi_strided *out);

/* Brings two sets of strides in bytes, of elements of one size, into order; the target's may be negative, but not 0. */
void lochi_strided_order(const size_t *sizes, size_t axes, size_t element_bytes, const ptrdiff_t *to,
                         const ptrdiff_t *from, lochi_strided *out);

/* Returns the number of elements. */
size_t lochi_strided_count(const lochi_strided *strided);

/* Returns the bytes that lie side by side in both, innermost; an element's at least. `axes` gets the number of axes outside of
 * them. */
size_t lochi_strided_row(const lochi_strided *strided, size_t *axes);

/* Copies elements of one size. `to` and `from` are the addresses of the elements with all indices 0. No byte of the target is
 * one of the source. */
void lochi_strided_copy(const lochi_strided *strided, void *to, const void *from);

/* Converts elements, in blocks that stay in the first cache. */
void lochi_strided_convert(const lochi_strided *strided, const lochi_converter *converter, void *to, const void *from);

#endif
