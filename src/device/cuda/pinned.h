/* SPDX-License-Identifier: MIT */
/* Pinned memory of CUDA devices (pinned.c). */
#ifndef LOCHI_CUDA_PINNED_H
#define LOCHI_CUDA_PINNED_H

#include "device/cuda/frame.h"
#include <loch/driver.h>

/* Tells whether the driver registers memory that Loch maps: registers a page and takes that back. Some systems refuse
 * it although the device's attribute promises it. For the opening of a device. */
bool lochi_cuda_can_pin_pages(const lochi_cuda_device *device);

/* Slots of the driver. */
loch_status lochi_cuda_pinned_alloc(void *self, size_t bytes, size_t alignment, void **out);
loch_status lochi_cuda_pinned_free(void *self, void *address, size_t bytes);
loch_status lochi_cuda_host_register(void *self, void *address, size_t bytes);
loch_status lochi_cuda_host_unregister(void *self, void *address, size_t bytes);

#endif
