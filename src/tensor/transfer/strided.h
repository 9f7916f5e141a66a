/* SPDX-License-Identifier: MIT */
/* Copies on the host between two layouts of one shape.
 *
 * Both layouts are first brought into one order. Axes of size 1 are removed. Axes along which the target runs backwards
 * are reversed. The others are sorted by the target's strides, and axes that continue each other on both sides are
 * joined. So most copies become rows, or tiles of a transpose. */
#ifndef LOCHI_STRIDED_H
#define LOCHI_STRIDED_H

#include "tensor/convert/convert.h"
#include "tensor/layout.h"

/* Two layouts of one shape, in order: the longest strides of the target first. There is at least one axis, and strides
 * of the target are not negative. */
typedef struct lochi_strided {
    size_t to_bytes, from_bytes; /* of an element */
    size_t axes;
    size_t sizes[LOCH_DIMENSIONS_MAX];
    ptrdiff_t to[LOCH_DIMENSIONS_MAX], from[LOCH_DIMENSIONS_MAX]; /* strides in bytes */
    ptrdiff_t to_start, from_start; /* bytes from the element with all indices 0 to the first element in this order */
} lochi_strided;

/* Brings two layouts of one shape into order. There are elements, and elements of the target do not share memory. */
void lochi_strided_make(const lochi_layout *to, const lochi_layout *from, lochi_strided *out);

/* Brings two sets of strides into order. Strides are in bytes, and elements have one size. Strides of the target may be
 * negative, but not 0. */
void lochi_strided_order(const size_t *sizes, size_t axes, size_t element_bytes, const ptrdiff_t *to,
                         const ptrdiff_t *from, lochi_strided *out);

/* Returns the number of elements. */
size_t lochi_strided_count(const lochi_strided *strided);

/* Returns the innermost bytes that are contiguous on both sides; at least one element. `axes` receives the number of
 * axes outside of them. */
size_t lochi_strided_row(const lochi_strided *strided, size_t *axes);

/* Tells whether all elements are contiguous on both sides, in one order. */
bool lochi_strided_is_row(const lochi_strided *strided);

/* Copies elements of one size. `to` and `from` are the addresses of the elements with all indices 0. Target and source
 * must not overlap. */
void lochi_strided_copy(const lochi_strided *strided, void *to, const void *from);

/* Converts elements in blocks that stay in the L1 cache. */
void lochi_strided_convert(const lochi_strided *strided, const lochi_converter *converter, void *to, const void *from);

#endif
