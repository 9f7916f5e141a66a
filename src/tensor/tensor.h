/* SPDX-License-Identifier: MIT */
/* The members of tensors, for src/tensor and the layers above.
 *
 * A tensor never stores an address. It asks its buffer each time, so it follows when the buffer's memory moves. It
 * stores the bytes that it reaches as two distances from its first element. So one comparison tells whether the buffer
 * still contains them. */
#ifndef LOCHI_TENSOR_H
#define LOCHI_TENSOR_H

#include "tensor/layout.h"
#include <stdatomic.h>

struct loch_tensor {
    atomic_size_t references;
    loch_buffer *buffer; /* retained */
    size_t offset;       /* bytes from the start of the buffer to the element with all indices 0; 0 without elements */
    lochi_layout layout;
    char name[LOCH_TENSOR_NAME_MAX];
};

/* Makes a tensor on a buffer and retains the buffer. Checks that the tensor fits. */
loch_status lochi_tensor_make(loch_buffer *buffer, size_t offset, const lochi_layout *layout, loch_tensor **out);

/* Reads and checks the caller's options. NULL gives the defaults. */
loch_status lochi_tensor_read_options(const loch_tensor_options *given, loch_tensor_options *out);

/* Makes a tensor with new memory. The layout is contiguous, and the options were read. */
loch_status lochi_tensor_alloc(const lochi_layout *layout, const loch_tensor_options *options, loch_tensor **out);

/* Sets the name of a tensor; NULL removes it. E_INVALID: the name is too long. No other thread may read the name during
 * the call. */
loch_status lochi_tensor_set_name(loch_tensor *tensor, const char *name);

/* Tells whether a tensor is in the own memory of `device`. Pinned memory has a device, but counts as host memory. */
bool lochi_tensor_is_at(const loch_tensor *tensor, const loch_device *device);

/* Pins the tensor's buffer while work is queued on `stream`, if it is movable. */
loch_status lochi_tensor_hold(const loch_tensor *tensor, loch_stream *stream);

/* Undoes lochi_tensor_hold. Returns `status`; if that is LOCH_OK, the failure of the undo. */
loch_status lochi_tensor_let_go(const loch_tensor *tensor, loch_stream *stream, loch_status status);

/* Returns E_INVALID if a tensor must not be written: its memory is read-only, or elements share memory. */
loch_status lochi_tensor_check_writable(const loch_tensor *tensor);

#endif
