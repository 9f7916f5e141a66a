/* SPDX-License-Identifier: MIT */
/* Every driver call of the CPU, of a simulated device, and of what LOCH_TEST_DEVICES names, fails in turn, once and for
 * good, through a driver from outside the library that forwards to theirs. */
#include "faulty_driver.h"
#include "sweep.h"
#include "test.h"

static void sweep_faulty(const char *device)
{
    const test_sweep sweep = {
        .device = device, .other = "sim:16MiB,granule=64KiB,backed,id=5", .from = &test_driver_faults};
    test_scenario_sweep(&sweep);
    assert_int_equal(test_faulty_open(), 0);
}

static void every_failing_call_of_the_cpu_is_survived(void **state)
{
    (void)state;
    sweep_faulty("faulty:cpu");
}

static void every_failing_call_of_sim_is_survived(void **state)
{
    (void)state;
    sweep_faulty("faulty:sim:64MiB,granule=64KiB,backed");
}

static void every_failing_call_of_named_devices_is_survived(void **state)
{
    (void)state;
    char list[1024], name[LOCH_DEVICE_NAME_MAX], *rest = NULL;
    const char *wanted = getenv("LOCH_TEST_DEVICES");
    snprintf(list, sizeof list, "%s", wanted ? wanted : "");
    for (char *one = strtok_r(list, ";", &rest); one; one = strtok_r(NULL, ";", &rest)) {
        loch_device *device = NULL;
        snprintf(name, sizeof name, "faulty:%.200s", one);
        loch_status status = loch_device_open(one, &device);
        if (status != LOCH_OK) print_message("%s: skipped: %s\n", one, loch_error_get()->sentence);
        if (status == LOCH_OK) sweep_faulty(name); /* held open meanwhile: starting a GPU takes long */
        loch_device_release(device);
    }
}

static void the_faulty_driver_refuses_bad_names(void **state)
{
    (void)state;
    loch_device *device = TEST_UNTOUCHED;
    CHECK_FAILS(loch_device_open("faulty", &device), INVALID);
    assert_null(device);
    CHECK_FAILS(loch_device_open("faulty:nosuchdriver", &device), NOT_FOUND);
    CHECK_FAILS(loch_device_open("faulty:cpu:banana", &device), INVALID);
    assert_int_equal(test_faulty_open(), 0);
    CHECK_OK(loch_device_open("faulty:cpu", &device));
    loch_device_properties properties = {.size = sizeof properties};
    CHECK_OK(loch_device_get_properties(device, &properties));
    assert_string_equal(properties.driver, "faulty");
    loch_device_release(device);
    assert_int_equal(test_faulty_open(), 0);
}

static int register_faulty(void **state)
{
    (void)state;
    return test_faulty_register() == LOCH_OK ? 0 : -1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_faulty_driver_refuses_bad_names),
        cmocka_unit_test(every_failing_call_of_the_cpu_is_survived),
        cmocka_unit_test(every_failing_call_of_sim_is_survived),
        cmocka_unit_test(every_failing_call_of_named_devices_is_survived),
    };
    return cmocka_run_group_tests_name("driver calls fail", tests, register_faulty, NULL);
}
