/* SPDX-License-Identifier: MIT */
/* Every driver call of a simulated device fails in turn, once and for good, by the device's own fault injection. */
#include "sweep.h"
#include "test.h"

static void sweep_sim(const char *device)
{
    const test_sweep sweep = {.device = device, .other = "cpu", .from = &test_sim_faults, .hold = true};
    test_scenario_sweep(&sweep);
}

static void a_backed_device_survives_every_failing_call(void **state)
{
    (void)state;
    sweep_sim("sim:64MiB,granule=64KiB,backed");
}

static void an_unbacked_device_survives_every_failing_call(void **state)
{
    (void)state;
    sweep_sim("sim:1GiB");
}

static void a_stepped_device_survives_every_failing_call(void **state)
{
    (void)state;
    sweep_sim("sim:64MiB,granule=64KiB,backed,clock=stepped");
}

static void a_device_without_virtual_memory_survives_every_failing_call(void **state)
{
    (void)state;
    sweep_sim("sim:64MiB,granule=64KiB,backed,virtual=off,async=off");
}

/* Each named call fails with a status of its own choosing. */
static void a_call_that_is_named_fails_with_the_status_that_was_set(void **state)
{
    (void)state;
    loch_device *device = NULL;
    void *block = TEST_UNTOUCHED;
    const loch_sim_fault fault = {
        .size = sizeof fault, .call = "raw_alloc", .after = 1, .mode = LOCH_SIM_FAULT_FOREVER, .status = LOCH_E_LIMIT};
    CHECK_OK(loch_device_open("sim:64MiB", &device));
    CHECK_OK(loch_sim_set_fault(device, &fault));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &block));
    for (int i = 0; i < 3; i++) {
        void *none = TEST_UNTOUCHED;
        CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &none), LIMIT);
        assert_null(none);
        CHECK_OK(loch_device_sync(device));
    }
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_sim_set_fault(device, NULL));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &block));
    CHECK_OK(loch_raw_free(block));
    loch_device_release(device);
}

/* A lost device refuses everything and still takes everything back. */
static void a_lost_device_takes_everything_back(void **state)
{
    (void)state;
    loch_host_usage before = {.size = sizeof before}, after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&before));
    loch_device *device = NULL;
    loch_stream *stream = NULL;
    loch_event *event = NULL;
    loch_handle *handle = NULL;
    void *block = NULL, *addresses = NULL, *none = TEST_UNTOUCHED;
    CHECK_OK(loch_device_open("sim:64MiB,granule=64KiB,backed,id=77", &device));
    CHECK_OK(loch_stream_create(device, NULL, &stream));
    CHECK_OK(loch_event_create(device, LOCH_EVENT_PLAIN, &event));
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 4096, 0, &block));
    CHECK_OK(loch_virtual_reserve(device, 64 * TEST_KIB, 0, &addresses));
    CHECK_OK(loch_handle_create(device, 64 * TEST_KIB, NULL, &handle));
    CHECK_OK(loch_virtual_map(addresses, handle, NULL, 0));
    CHECK_OK(loch_fill_on(block, 4096, "a", 1, stream));
    CHECK_OK(loch_event_record(event, stream));
    CHECK_OK(loch_sim_lose(device));

    CHECK_FAILS(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, 100, 0, &none), DEVICE_LOST);
    assert_null(none);
    CHECK_FAILS(loch_device_sync(device), DEVICE_LOST);
    CHECK_FAILS(loch_stream_sync(stream), DEVICE_LOST);
    CHECK_FAILS(loch_event_sync(event), DEVICE_LOST);
    CHECK_FAILS(loch_fill(block, 4096, "a", 1), DEVICE_LOST);
    CHECK_OK(loch_raw_free(block));
    CHECK_OK(loch_virtual_unmap(addresses));
    loch_handle_destroy(handle);
    CHECK_OK(loch_virtual_unreserve(addresses));
    loch_event_destroy(event);
    loch_stream_close(stream);
    loch_device_release(device);
    CHECK_OK(loch_host_get_usage(&after));
    assert_int_equal(after.blocks, before.blocks);
    assert_int_equal(after.bytes, before.bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_backed_device_survives_every_failing_call),
        cmocka_unit_test(an_unbacked_device_survives_every_failing_call),
        cmocka_unit_test(a_stepped_device_survives_every_failing_call),
        cmocka_unit_test(a_device_without_virtual_memory_survives_every_failing_call),
        cmocka_unit_test(a_call_that_is_named_fails_with_the_status_that_was_set),
        cmocka_unit_test(a_lost_device_takes_everything_back),
    };
    return cmocka_run_group_tests_name("driver calls of sim fail", tests, NULL, NULL);
}
