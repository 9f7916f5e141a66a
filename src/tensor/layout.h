/* SPDX-License-Identifier: MIT */
/* Layouts: type, shape and strides without memory. */
#ifndef LOCHI_LAYOUT_H
#define LOCHI_LAYOUT_H

#include "base/shared.h"
#include <loch/tensor.h>
#include <stdbool.h>

/* Type, shape and strides, without memory. */
typedef struct lochi_layout {
    loch_dtype dtype;
    size_t element_bytes;
    size_t dimensions;
    int64_t shape[LOCH_DIMENSIONS_MAX];   /* not negative */
    int64_t strides[LOCH_DIMENSIONS_MAX]; /* in elements */
    size_t elements;                      /* product of the shape; elements * element_bytes fits a size_t */
    /* bytes reached before the element with all indices 0, and from it on; both 0 without elements */
    size_t below, above;
} lochi_layout;

/* Checks type and shape, and fills all members of `out`. NULL strides: contiguous, row-major. */
LOCHI_SHARED loch_status lochi_layout_make(loch_dtype dtype, size_t dimensions, const int64_t *shape,
                                           const int64_t *strides, lochi_layout *out);

/* Tells whether the elements are contiguous in row-major order. */
bool lochi_layout_is_contiguous(const lochi_layout *layout);

/* Tells whether two elements may share memory: a stride is 0, or strides overlap. */
bool lochi_layout_has_shared_places(const lochi_layout *layout);

/* Reads an axis of a tensor with `dimensions`. Negative axes count from the end. */
LOCHI_SHARED loch_status lochi_axis_read(size_t dimensions, int axis, size_t *out);

#endif
