/* SPDX-License-Identifier: MIT */
/* Maps the same physical memory first at one address, then at another, without a copy.
 *
 *   02_granules [DEVICE]     cpu, cuda:0, sim:1GiB (default: cpu) */
#include <loch/loch.h>
#include <loch/virtual.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{
    loch_device *device;
    loch_handle *handle;
    void *first;
    char sent[] = "the memory moved, nothing was copied", received[sizeof sent] = "";
    loch_device_properties properties = {.size = sizeof properties};

    LOCH_CHECK(loch_device_open(count > 1 ? arguments[1] : "cpu", &device));
    LOCH_CHECK(loch_device_get_properties(device, &properties));
    const size_t granule = properties.granule_bytes;
    LOCH_CHECK(loch_virtual_reserve(device, 16 * granule, 0, &first));
    LOCH_CHECK(loch_handle_create(device, granule, NULL, &handle));
    LOCH_CHECK(loch_virtual_map(first, handle, NULL, 0));
    LOCH_CHECK(loch_copy(first, sent, sizeof sent));
    LOCH_CHECK(loch_virtual_unmap(first));
    void *second = (char *)first + 9 * granule;
    LOCH_CHECK(loch_virtual_map(second, handle, NULL, 0));
    LOCH_CHECK(loch_copy(received, second, sizeof received));
    printf("%s: %s\n", loch_device_get_name(device), received);

    loch_handle_destroy(handle); /* still mapped: the memory is freed with the mapping */
    LOCH_CHECK(loch_virtual_unmap(second));
    LOCH_CHECK(loch_virtual_unreserve(first));
    loch_device_release(device);
    return !strcmp(sent, received) ? 0 : 1;
}
