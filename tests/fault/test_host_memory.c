/* SPDX-License-Identifier: MIT */
/* Every allocation of the library's own bookkeeping fails in turn, once and for good. */
#include "faulty_driver.h"
#include "sweep.h"
#include "test.h"

static void sweep_heap(const char *device, const char *other)
{
    const test_sweep sweep = {.device = device, .other = other, .from = &test_host_faults};
    uint64_t live = test_heap_live();
    test_scenario_sweep(&sweep);
    assert_int_equal(test_heap_live(), live);
    assert_int_equal(test_heap_wrong(), 0);
}

static void the_cpu_survives_failing_host_memory(void **state)
{
    (void)state;
    sweep_heap("cpu", "sim:16MiB,granule=64KiB,backed,id=5");
}

static void sim_survives_failing_host_memory(void **state)
{
    (void)state;
    sweep_heap("sim:64MiB,granule=64KiB,backed", "cpu");
}

static void an_unbacked_sim_survives_failing_host_memory(void **state)
{
    (void)state;
    sweep_heap("sim:1GiB,clock=stepped", "sim:1GiB,id=3");
}

static void a_driver_from_outside_survives_failing_host_memory(void **state)
{
    (void)state;
    sweep_heap("faulty:cpu", "cpu");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cpu_survives_failing_host_memory),
        cmocka_unit_test(sim_survives_failing_host_memory),
        cmocka_unit_test(an_unbacked_sim_survives_failing_host_memory),
        cmocka_unit_test(a_driver_from_outside_survives_failing_host_memory),
    };
    return cmocka_run_group_tests_name("host allocations fail", tests, test_faults_prepare, NULL);
}
