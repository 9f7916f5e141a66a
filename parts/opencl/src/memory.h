/* SPDX-License-Identifier: MIT */
/* Memory of an OpenCL device: shared virtual memory, coarse-grained for the device, fine-grained for pinned blocks. */
#ifndef LOCH_OPENCL_MEMORY_H
#define LOCH_OPENCL_MEMORY_H

#include "state.h"

loch_status lochi_opencl_memory_info(void *self, loch_memory_info *out);
loch_status lochi_opencl_raw_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_opencl_raw_free(void *self, void *address, size_t bytes);
loch_status lochi_opencl_pinned_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_opencl_pinned_free(void *self, void *address, size_t bytes);

/* Tells whether a range lies in one pinned block of the device. */
bool lochi_opencl_is_pinned(lochi_opencl_device *device, const void *address, size_t bytes);

#endif
