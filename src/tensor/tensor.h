/* SPDX-License-Identifier: MIT */
/* The inside of tensors, for src/tensor and the layers above.
 *
 * A tensor never holds an address: it asks its buffer each time, so that it follows when the buffer's memory moves. What it
 * reaches is kept as two distances from its first element, so that one comparison tells whether the buffer still holds it. */
#ifndef LOCHI_TENSOR_H
#define LOCHI_TENSOR_H

#include "tensor/layout.h"
#include <stdatomic.h>

struct loch_tensor {
    atomic_size_t references;
    loch_buffer *buffer; /* held */
    size_t offset;       /* bytes from the start of the buffer to the element with all indices 0; 0 without elements */
    lochi_layout layout;
    char name[LOCH_TENSOR_NAME_MAX];
};

/* Makes a tensor on a buffer, which it retains; checks that it fits. */
loch_status lochi_tensor_make(loch_buffer *buffer, size_t offset, const lochi_layout *layout, loch_tensor **out);

/* Reads and checks what a caller gave; NULL gives the defaults. */
loch_status lochi_tensor_read_options(const loch_tensor_options *given, loch_tensor_options *out);

/* Makes a tensor with memory of its own. The layout is in rows, the options were read. */
loch_status lochi_tensor_alloc(const lochi_layout *layout, const loch_tensor_options *options, loch_tensor **out);

/* Tells whether a tensor lies where work of `device` is at home. Pinned memory belongs to a device, but is the host's. */
bool lochi_tensor_is_at(const loch_tensor *tensor, const loch_device *device);

/* Gives the tensor an address while work is queued on `stream`. */
loch_status lochi_tensor_hold(const loch_tensor *tensor, loch_stream *stream);

/* Undoes lochi_tensor_hold. Returns `status`, or the failure to let go when that is LOCH_OK. */
loch_status lochi_tensor_let_go(const loch_tensor *tensor, loch_stream *stream, loch_status status);

/* Refuses a tensor that must not be written, by E_INVALID: read-only memory, elements that share a place. */
loch_status lochi_tensor_check_writable(const loch_tensor *tensor);

#endif
