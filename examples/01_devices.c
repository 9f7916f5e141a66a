/* SPDX-License-Identifier: MIT */
/* Opens a device, takes memory from its default allocator, copies there and back on a stream, and waits.
 *
 *   01_devices [DEVICE]     cpu, cuda:0, sim:1GiB (default: cpu) */
#include <loch/loch.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **arguments)
{
    loch_device *device;
    loch_allocator *allocator;
    loch_stream *stream;
    void *block;
    char sent[] = "a loch is a lake, a pool", received[sizeof sent] = "";
    loch_device_properties properties = {.size = sizeof properties};

    LOCH_CHECK(loch_device_open(count > 1 ? arguments[1] : "cpu", &device)); /* ends the program on a failure */
    LOCH_CHECK(loch_device_get_properties(device, &properties));
    LOCH_CHECK(loch_device_acquire_default(device, &allocator));
    LOCH_CHECK(loch_stream_create(device, NULL, &stream));
    LOCH_CHECK(loch_alloc(allocator, sizeof sent, &block));
    LOCH_CHECK(loch_copy_on(block, sent, sizeof sent, stream));
    LOCH_CHECK(loch_copy_on(received, block, sizeof received, stream));
    LOCH_CHECK(loch_stream_sync(stream));
    printf("%s (%s) says: %s\n", loch_device_get_name(device), properties.model, received);

    LOCH_CHECK(loch_free(allocator, block));
    loch_stream_close(stream);
    loch_allocator_release(allocator);
    loch_device_release(device);
    return !strcmp(sent, received) ? 0 : 1;
}
