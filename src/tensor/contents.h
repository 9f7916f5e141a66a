/* SPDX-License-Identifier: MIT */
/* Copies with memory of their own, for the files of src/tensor. */
#ifndef LOCHI_CONTENTS_H
#define LOCHI_CONTENTS_H

#include "tensor/tensor.h"

/* Copies one tensor to another, in the order of `stream`. */
loch_status lochi_contents_copy(loch_tensor *to, loch_tensor *from, loch_stream *stream, loch_wait wait);

/* Allocates memory for a copy of a tensor, in the order of the stream that copies. Where that is not a stream of the memory's
 * own device, and the memory the host's, nothing orders the copy behind what that device still does with it: it is waited for. */
loch_status lochi_contents_alloc(const loch_tensor *from, const lochi_layout *layout,
                                 const loch_tensor_options *options, loch_tensor **out);

#endif
