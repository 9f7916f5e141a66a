/* SPDX-License-Identifier: MIT */
/* Finding, opening and closing of OpenCL devices. */
#ifndef LOCH_OPENCL_DEVICE_H
#define LOCH_OPENCL_DEVICE_H

#include "state.h"

loch_status lochi_opencl_enumerate(loch_device_visitor *visitor, void *user);
loch_status lochi_opencl_open(const char *arguments, void **self);
void lochi_opencl_close(void *self);
loch_status lochi_opencl_get_properties(void *self, loch_device_properties *out);

#endif
