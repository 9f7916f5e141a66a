/* SPDX-License-Identifier: MIT */
/* The CUDA driver for other rooms. Libraries that work in the context of a device use its frame (frame.h). */
#ifndef LOCHI_CUDA_H
#define LOCHI_CUDA_H

#include "base/shared.h"
#include "device/cuda/frame.h"
#include <loch/driver.h>

extern const loch_driver lochi_cuda_driver;

/* Returns the CUDA part of a device; NULL for a device of another driver. Valid as long as the device. */
LOCHI_SHARED const lochi_cuda_device *lochi_cuda_of(const loch_device *device);

/* Makes the context of the device current in the calling thread, in place of the current one, and leaves it current. */
LOCHI_SHARED loch_status lochi_cuda_make_current(const lochi_cuda_device *device);

#endif
