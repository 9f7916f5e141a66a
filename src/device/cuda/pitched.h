/* SPDX-License-Identifier: MIT */
/* Copies of rows on CUDA devices (pitched.c). */
#ifndef LOCHI_CUDA_PITCHED_H
#define LOCHI_CUDA_PITCHED_H

#include <loch/driver.h>

/* Slot of the driver. */
loch_status lochi_cuda_copy_pitched(void *self, loch_direction direction, void *to, const void *from,
                                    const loch_pitched *shape, void *peer, void *stream);

#endif
