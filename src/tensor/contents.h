/* SPDX-License-Identifier: MIT */
/* Copies in new memory, for the files of src/tensor. */
#ifndef LOCHI_CONTENTS_H
#define LOCHI_CONTENTS_H

#include "tensor/tensor.h"

/* Copies one tensor to another, ordered by `stream`. */
loch_status lochi_contents_copy(loch_tensor *to, loch_tensor *from, loch_stream *stream, loch_wait wait);

/* Allocates memory for a copy of a tensor, ordered by the stream that copies. If that stream does not belong to the
 * device of the new memory, and the memory is host memory, nothing orders the copy after work of that device that still
 * uses the memory: then this function waits for that work. */
loch_status lochi_contents_alloc(const loch_tensor *from, const lochi_layout *layout,
                                 const loch_tensor_options *options, loch_tensor **out);

#endif
