/* SPDX-License-Identifier: MIT */
/* Copies and fills of an OpenCL device. */
#ifndef LOCH_OPENCL_COPY_H
#define LOCH_OPENCL_COPY_H

#include "state.h"

loch_status lochi_opencl_copy(void *self, loch_direction direction, void *to, const void *from, size_t bytes,
                              void *peer, void *stream);
loch_status lochi_opencl_copy_pitched(void *self, loch_direction direction, void *to, const void *from,
                                      const loch_pitched *shape, void *peer, void *stream);
loch_status lochi_opencl_fill(void *self, void *to, size_t bytes, uint32_t pattern, size_t pattern_bytes, void *stream);

#endif
