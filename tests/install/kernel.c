/* SPDX-License-Identifier: MIT */
/* A program outside the tree that loads a module: the host has no kernels, which it is told. */
#include <loch/kernel.h>

int main(void)
{
    static const char ptx[] = ".version 7.0\n.target sm_75\n.address_size 64\n";
    loch_device *device;
    loch_module *module;
    if (loch_device_open("cpu", &device) != LOCH_OK) return 1;
    const loch_status status = loch_module_create(device, ptx, sizeof ptx, NULL, &module);
    loch_device_release(device);
    return status != LOCH_E_UNSUPPORTED;
}
