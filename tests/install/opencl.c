/* SPDX-License-Identifier: MIT */
/* A program outside the tree that registers the driver for OpenCL, and opens a device where there is one. */
#include <loch/opencl.h>

int main(void)
{
    loch_device *device;
    if (loch_opencl_register() != LOCH_OK) return 1;
    const loch_status status = loch_device_open("opencl:0", &device);
    loch_device_release(device);
    return status != LOCH_OK && status != LOCH_E_NOT_FOUND && status != LOCH_E_UNSUPPORTED;
}
