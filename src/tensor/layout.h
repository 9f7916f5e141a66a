/* SPDX-License-Identifier: MIT */
/* Types, shapes and strides without memory. */
#ifndef LOCHI_LAYOUT_H
#define LOCHI_LAYOUT_H

#include <loch/tensor.h>
#include <stdbool.h>

/* Type, shape and strides, without memory. */
typedef struct lochi_layout {
    loch_dtype dtype;
    size_t element_bytes;
    size_t dimensions;
    int64_t shape[LOCH_DIMENSIONS_MAX];   /* none negative */
    int64_t strides[LOCH_DIMENSIONS_MAX]; /* in elements */
    size_t elements;                      /* their product; elements * element_bytes fits a size_t */
    size_t below, above; /* bytes reached before and from the element with all indices 0; 0 and 0 without elements */
} lochi_layout;

/* Checks type and shape, and fills in all of `out`. NULL strides: row after row. */
loch_status lochi_layout_make(loch_dtype dtype, size_t dimensions, const int64_t *shape, const int64_t *strides,
                              lochi_layout *out);

/* Tells whether the elements lie side by side, row after row. */
bool lochi_layout_is_contiguous(const lochi_layout *layout);

/* Tells whether two elements may share a place: a stride of 0, or strides that fold over each other. */
bool lochi_layout_has_shared_places(const lochi_layout *layout);

/* Reads an axis of a tensor with `dimensions`; negative ones are counted from the end. */
loch_status lochi_axis_read(size_t dimensions, int axis, size_t *out);

#endif
