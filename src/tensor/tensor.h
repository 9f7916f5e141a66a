/* SPDX-License-Identifier: MIT */
/* The inside of tensors, for src/tensor and the layers above.
 *
 * A tensor never holds an address: it asks its buffer each time, so that it follows when the buffer's memory moves. What it
 * reaches is kept as two distances from its first element, so that one comparison tells whether the buffer still holds it. */
#ifndef LOCHI_TENSOR_H
#define LOCHI_TENSOR_H

#include <loch/tensor.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Type, shape and strides, without memory. */
typedef struct lochi_layout {
    loch_dtype dtype;
    size_t element_bytes;
    size_t dimensions;
    int64_t shape[LOCH_DIMENSIONS_MAX];   /* none negative */
    int64_t strides[LOCH_DIMENSIONS_MAX]; /* in elements */
    size_t elements;                      /* their product; elements * element_bytes fits a size_t */
    size_t below,
        above; /* bytes that it reaches before and from the element with all indices 0; 0 and 0 without elements */
} lochi_layout;

struct loch_tensor {
    atomic_size_t references;
    loch_buffer *buffer; /* held */
    size_t offset;       /* bytes from the start of the buffer to the element with all indices 0; 0 without elements */
    lochi_layout layout;
    char name[LOCH_TENSOR_NAME_MAX];
};

/* Checks type and shape, and fills in all of `out`. NULL strides: row after row. */
loch_status lochi_layout_make(loch_dtype dtype, size_t dimensions, const int64_t *shape, const int64_t *strides,
                              lochi_layout *out);

/* Whether the elements lie side by side, row after row. */
bool lochi_layout_is_contiguous(const lochi_layout *layout);

/* Whether two elements may share a place: a stride of 0, or strides that fold over each other. */
bool lochi_layout_has_shared_places(const lochi_layout *layout);

/* Makes a tensor on a buffer, which it retains; checks that it fits. */
loch_status lochi_tensor_make(loch_buffer *buffer, size_t offset, const lochi_layout *layout, loch_tensor **out);

/* An axis of a tensor with `dimensions`, negative ones counted from the end. */
loch_status lochi_axis_read(size_t dimensions, int axis, size_t *out);

/* Whether a tensor lies where work of `device` is at home. Pinned memory belongs to a device, but is the host's. */
bool lochi_tensor_is_at(const loch_tensor *tensor, const loch_device *device);

/* Around the queueing of work on `stream`: the tensor has an address. The status passes through letting go. */
loch_status lochi_tensor_hold(const loch_tensor *tensor, loch_stream *stream);
loch_status lochi_tensor_let_go(const loch_tensor *tensor, loch_stream *stream, loch_status status);

/* E_INVALID for a tensor that must not be written: read-only memory, elements that share a place. */
loch_status lochi_tensor_check_writable(const loch_tensor *tensor);

#endif
