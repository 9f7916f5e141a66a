/* SPDX-License-Identifier: MIT */
/* Opens a device, takes memory from it, copies there and back on a stream, and waits.
 *
 *   01_devices [DEVICE]     cpu, cuda:0, sim:1GiB,backed (default: cpu) */
#include <loch/loch.h>
#include <loch/driver.h>
#include <loch/raw.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{
    loch_device *device = NULL;
    loch_stream *stream = NULL;
    void *block = NULL;
    char sent[] = "a loch is a lake, a pool", received[sizeof sent] = "";
    loch_device_properties properties = {.size = sizeof properties};

    loch_status status = loch_device_open(count > 1 ? arguments[1] : "cpu", &device);
    if (status == LOCH_OK) status = loch_device_get_properties(device, &properties);
    if (status == LOCH_OK) status = loch_stream_create(device, NULL, &stream);
    if (status == LOCH_OK) status = loch_raw_alloc(device, LOCH_MEMORY_DEVICE, sizeof sent, 0, &block);
    if (status == LOCH_OK) status = loch_copy_on(block, sent, sizeof sent, stream);
    if (status == LOCH_OK) status = loch_copy_on(received, block, sizeof received, stream);
    if (status == LOCH_OK) status = loch_stream_sync(stream);
    if (status == LOCH_OK) printf("%s (%s) says: %s\n", loch_device_get_name(device), properties.model, received);
    if (status != LOCH_OK) fprintf(stderr, "%s\n", loch_error_get()->sentence);

    const loch_status freed = loch_raw_free(block);
    loch_stream_close(stream);
    loch_device_release(device);
    return status == LOCH_OK && freed == LOCH_OK && !strcmp(sent, received) ? 0 : 1;
}
