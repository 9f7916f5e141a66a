/* SPDX-License-Identifier: MIT */
/* Kernels of libloch_kernel on CUDA devices (kernels.c). */
#ifndef LOCHI_CUDA_KERNELS_H
#define LOCHI_CUDA_KERNELS_H

#include "device/cuda/frame.h"
#include <loch/driver.h>

/* Both slots of the driver. E_UNSUPPORTED, without a sentence: libloch_kernel is not there, or has no kernel for it. */
loch_status lochi_cuda_run_strided(void *self, const loch_strided *work, void *stream);

/* Unloads the kernels of a device that is closed. */
void lochi_cuda_end_kernels(lochi_cuda_device *device);

#endif
