/* SPDX-License-Identifier: MIT */
/* Fuzz target: names of devices. A name that opens names one device, which gives memory and takes it back. */
#include "fuzz.h"

#define NAME_REFUSALS                                                                                                  \
    (TEST_SET(INVALID) | TEST_SET(NOT_FOUND) | TEST_SET(UNSUPPORTED) | TEST_SET(OVERFLOW) | TEST_SET(IO) |             \
     TEST_SET(HOST_MEMORY) | TEST_SET(DEVICE_MEMORY) | TEST_SET(DRIVER))

static void names_use(loch_device *device, const char *name)
{
    loch_device *again;
    loch_memory_info memory = {.size = sizeof memory};
    void *block = TEST_UNTOUCHED;
    loch_device_properties properties = {.size = sizeof properties};
    CHECK_OK(loch_device_open(name, &again));
    FUZZ_EXPECT(again == device);
    loch_device_release(again);
    CHECK_OK(loch_device_open(loch_device_get_name(device), &again));
    FUZZ_EXPECT(again == device);
    loch_device_release(again);
    CHECK_OK(loch_device_get_properties(device, &properties));
    FUZZ_EXPECT((properties.granule_bytes & (properties.granule_bytes - 1)) == 0);
    CHECK_OK(loch_device_calculate_memory(device, &memory));
    FUZZ_EXPECT(memory.free_bytes <= memory.total_bytes);
    const loch_status status = loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 1000, 0, &block);
    if (status == LOCH_OK)
        CHECK_OK(loch_raw_free(block));
    else
        FUZZ_FAILED(status, TEST_SET(DEVICE_MEMORY) | TEST_SET(HOST_MEMORY));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_input input = {data, bytes};
    char name[LOCH_DEVICE_NAME_MAX + 44];
    loch_device *device = TEST_UNTOUCHED;
    fuzz_text(&input, name, sizeof name);
    if (strstr(name, "costs=")) return 0; /* any file of this machine: fuzz_costs has its own */
    fuzz_begin();
    loch_error_clear();
    const loch_status status = loch_device_open(name, &device);
    if (status == LOCH_OK) {
        names_use(device, name);
        loch_device_release(device);
    } else {
        FUZZ_FAILED(status, NAME_REFUSALS);
        FUZZ_EXPECT(!device);
    }
    fuzz_end();
    return 0;
}
