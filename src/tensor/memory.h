/* SPDX-License-Identifier: MIT */
/* Memory for new tensors. */
#ifndef LOCHI_TENSOR_MEMORY_H
#define LOCHI_TENSOR_MEMORY_H

#include "tensor/tensor.h"

/* Reads and checks what a caller gave; NULL gives the defaults. */
loch_status lochi_tensor_read_options(const loch_tensor_options *given, loch_tensor_options *out);

/* Makes a tensor with memory of its own. The layout is in rows, the options were read. */
loch_status lochi_tensor_alloc(const lochi_layout *layout, const loch_tensor_options *options, loch_tensor **out);

#endif
