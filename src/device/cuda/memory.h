/* SPDX-License-Identifier: MIT */
/* Memory of CUDA devices (memory.c). */
#ifndef LOCHI_CUDA_MEMORY_H
#define LOCHI_CUDA_MEMORY_H

#include "device/cuda/frame.h"
#include <loch/driver.h>

/* Returns the driver's description of a handle of the device's memory. */
cu_allocation lochi_cuda_describe(const lochi_cuda_device *device);

/* Tells whether a mapping that network cards can access works. Under WSL 2 the device says so, and opening one fails. A
 * full device tells nothing: it counts as one where it works. */
bool lochi_cuda_try_rdma(const lochi_cuda_device *device);

/* Slots of the driver. */
loch_status lochi_cuda_raw_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_cuda_raw_free(void *self, void *address, size_t bytes);
loch_status lochi_cuda_managed_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_cuda_ordered_alloc(void *self, size_t bytes, void *stream, void **out);
loch_status lochi_cuda_ordered_free(void *self, void *address, size_t bytes, void *stream);
loch_status lochi_cuda_reserve(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_cuda_unreserve(void *self, void *address, size_t bytes);
loch_status lochi_cuda_handle_create(void *self, size_t bytes, const loch_handle_options *options,
                                     loch_driver_handle *out);
loch_status lochi_cuda_handle_release(void *self, loch_driver_handle handle, size_t bytes);
loch_status lochi_cuda_handle_export(void *self, loch_driver_handle handle, loch_share share, void *out);
/* Closes what exports keep open. The device is being closed. */
void lochi_cuda_end_exports(lochi_cuda_device *device);
loch_status lochi_cuda_handle_import(void *self, loch_share share, const void *shared, size_t bytes,
                                     loch_driver_handle *out);
loch_status lochi_cuda_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers,
                           size_t peers_count);
loch_status lochi_cuda_unmap(void *self, void *address, size_t bytes, loch_driver_handle handle);

#endif
