/* SPDX-License-Identifier: MIT */
/* Fuzz target: tables of driver-call costs. What was read gives a cost for every call and size, and that of a point at
 * the point. */
#include "device/sim/cost.h"
#include "fuzz.h"

static void costs_expect(const lochi_sim_costs *costs)
{
    static const size_t sizes[] = {0, 1, 4096, (size_t)1 << 21, (size_t)1 << 40, SIZE_MAX / 2, SIZE_MAX};
    for (int call = 0; call < LOCH_CALL_COUNT; call++) {
        const lochi_sim_curve *curve = &costs->curves[call];
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            (void)lochi_sim_cost(costs, (loch_driver_call)call, sizes[i]);
        if (curve->count)
            FUZZ_EXPECT(lochi_sim_cost(costs, (loch_driver_call)call, curve->points[0].bytes) == curve->points[0].ns);
    }
}

/* A device that was opened with the table works. */
static void costs_open(const char *path)
{
    char name[128];
    loch_device *device;
    void *block;
    snprintf(name, sizeof name, "sim:16MiB,costs=%s", path);
    CHECK_OK(loch_device_open(name, &device));
    const loch_status status = loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 4096, 0, &block);
    if (status == LOCH_OK) CHECK_OK(loch_raw_free(block));
    loch_device_release(device);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const fuzz_input input = {data, bytes};
    lochi_sim_costs costs;
    lochi_sim_costs_default(&costs);
    fuzz_begin();
    const char *path = fuzz_file(&input);
    loch_error_clear();
    const loch_status status = lochi_sim_costs_read(&costs, path);
    if (status != LOCH_OK) {
        FUZZ_FAILED(status, TEST_SET(INVALID));
    } else {
        costs_expect(&costs);
        costs_open(path);
    }
    fuzz_end();
    return 0;
}
