/* SPDX-License-Identifier: MIT */
/* The door of the CUDA driver: what other rooms may use. Libraries that work in the context of a device stand in its frame. */
#ifndef LOCHI_CUDA_H
#define LOCHI_CUDA_H

#include "device/cuda/frame.h"
#include <loch/driver.h>

extern const loch_driver lochi_cuda_driver;

/* Returns what of a device is CUDA's; NULL for a device of another driver. It lives as long as the device. */
const lochi_cuda_device *lochi_cuda_of(const loch_device *device);

/* Leaves the context of the device current in the calling thread, in place of the one that was. */
loch_status lochi_cuda_make_current(const lochi_cuda_device *device);

#endif
