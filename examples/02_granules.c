/* SPDX-License-Identifier: MIT */
/* Addresses and memory apart: the same physical memory is seen at one address, then at another, without a copy.
 *
 *   02_granules [DEVICE]     cpu, cuda:0, sim:1GiB,backed (default: cpu) */
#include <loch/loch.h>
#include <loch/driver.h>
#include <loch/virtual.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{
    loch_device *device = NULL;
    loch_handle *handle = NULL;
    void *addresses = NULL, *second = NULL;
    bool is_mapped = false;
    char sent[] = "the memory moved, nothing was copied", received[sizeof sent] = "";
    loch_device_properties properties = {.size = sizeof properties};

    loch_status status = loch_device_open(count > 1 ? arguments[1] : "cpu", &device);
    if (status == LOCH_OK) status = loch_device_get_properties(device, &properties);
    const size_t granule = properties.granule_bytes;
    if (status == LOCH_OK) status = loch_virtual_reserve(device, 16 * granule, 0, &addresses);
    if (status == LOCH_OK) status = loch_handle_create(device, granule, NULL, &handle);
    if (status == LOCH_OK) status = loch_virtual_map(addresses, handle, NULL, 0);
    if (status == LOCH_OK) status = loch_copy(addresses, sent, sizeof sent);
    if (status == LOCH_OK) status = loch_virtual_unmap(addresses);
    if (status == LOCH_OK) {
        second = (char *)addresses + 9 * granule;
        status = loch_virtual_map(second, handle, NULL, 0);
        is_mapped = status == LOCH_OK;
    }
    if (status == LOCH_OK) status = loch_copy(received, second, sizeof received);
    if (status == LOCH_OK) printf("%s: %s\n", loch_device_get_name(device), received);
    if (status != LOCH_OK) fprintf(stderr, "%s\n", loch_error_get()->sentence);

    loch_handle_destroy(handle); /* still mapped: the memory goes with the mapping */
    if (is_mapped && loch_virtual_unmap(second) != LOCH_OK) status = LOCH_E_DRIVER;
    if (loch_virtual_unreserve(addresses) != LOCH_OK) status = LOCH_E_DRIVER;
    loch_device_release(device);
    return status == LOCH_OK && !strcmp(sent, received) ? 0 : 1;
}
