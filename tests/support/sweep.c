/* SPDX-License-Identifier: MIT */
/* The loop over N of the fault tests. */
#include "sweep.h"
#include "faulty_driver.h"
#include "test.h"

static const char *const sweep_modes[] = {"never", "once", "for good"};

static void sweep_check_usage(const test_sweep *sweep, const loch_host_usage *before, const char *when)
{
    loch_host_usage after = {.size = sizeof after};
    CHECK_OK(loch_host_get_usage(&after));
    if (after.blocks != before->blocks || after.bytes != before->bytes)
        fail_msg("%s, %s: the bookkeeping holds %zu bytes in %zu pieces, before it were %zu in %zu", sweep->device,
                 when, after.bytes, after.blocks, before->bytes, before->blocks);
}

/* The promises about one run. Returns whether the fault was felt. */
static bool sweep_check_run(const test_sweep *sweep, const test_scenario *run, const char *when)
{
    if (run->kept) fail_msg("%s, %s: %s failed, it gives something back", sweep->device, when, run->kept);
    if (run->status == LOCH_OK) return false;
    if (run->status == LOCH_E_CORRUPT)
        fail_msg("%s, %s: %s: memory does not hold what was copied there", sweep->device, when, run->call);
    if (run->error.status != run->status || !run->error.sentence[0])
        fail_msg("%s, %s: %s gave %s, but the record says %s, \"%s\"", sweep->device, when, run->call,
                 loch_status_name(run->status), loch_status_name(run->error.status), run->error.sentence);
    return true;
}

/* One faulted run and one without; returns whether there was something at place `after`, and whether it was felt. */
static bool sweep_at(const test_sweep *sweep, test_failing mode, uint64_t after, bool *felt)
{
    char when[64];
    loch_host_usage before = {.size = sizeof before};
    loch_device *held = NULL;
    test_scenario run;

    snprintf(when, sizeof when, "failing %s at %llu", sweep_modes[mode], (unsigned long long)after);
    CHECK_OK(loch_host_get_usage(&before));
    if (sweep->hold) CHECK_OK(loch_device_open(sweep->device, &held));
    sweep->set(mode, after, held);
    test_scenario_run(&run, sweep->device, sweep->other);
    bool reached = sweep->count(held) > after;
    sweep->set(TEST_FAILING_NEVER, 0, held);
    *felt = sweep_check_run(sweep, &run, when);
    if (*felt && !reached)
        fail_msg("%s, %s: %s failed without a fault: %s", sweep->device, when, run.call, run.error.sentence);
    /* simulated time goes on, so that what was queued lands */
    if (held) CHECK_OK(loch_device_sync(held));
    if (sweep->is_clean && held && !sweep->is_clean(held))
        fail_msg("%s, %s (%s): something is left on the device", sweep->device, when, run.call ? run.call : "coped");
    if (!sweep->hold) sweep_check_usage(sweep, &before, when);

    test_scenario_run(&run, sweep->device, sweep->other);
    if (run.status != LOCH_OK)
        fail_msg("%s, after %s: %s gave %s: %s", sweep->device, when, run.call, loch_status_name(run.status),
                 run.error.sentence);
    if (sweep->is_clean && held && !sweep->is_clean(held))
        fail_msg("%s, after %s: something is left on the device", sweep->device, when);
    loch_device_release(held);
    sweep_check_usage(sweep, &before, when);
    return reached;
}

void test_sweep_run(const test_sweep *sweep)
{
    bool felt = true;
    test_scenario run;
    uint64_t failures = 0, places = 0;

    test_scenario_run(&run, sweep->device, sweep->other);
    if (run.status != LOCH_OK)
        fail_msg("%s: %s gave %s without any fault: %s", sweep->device, run.call, loch_status_name(run.status),
                 run.error.sentence);
    for (test_failing mode = TEST_FAILING_ONCE; mode <= TEST_FAILING_FOREVER; mode++) {
        uint64_t after = 0;
        while (sweep_at(sweep, mode, after, &felt)) {
            failures += felt;
            after++;
        }
        places += after;
    }
    print_message("%s: %llu faults, %llu of them felt\n", sweep->device, (unsigned long long)places,
                  (unsigned long long)failures);
    assert_true(places > 40 && failures > places / 4);
}

/* --- the driver calls of a simulated device --- */

static uint64_t sim_calls_before;

static uint64_t sim_calls(loch_device *device)
{
    loch_sim_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_sim_get_stats(device, &stats));
    return stats.calls;
}

void test_host_set(test_failing mode, uint64_t after, loch_device *device)
{
    (void)device;
    test_heap_set(mode, after);
}

uint64_t test_host_count(loch_device *device)
{
    (void)device;
    return test_heap_count();
}

void test_sim_set(test_failing mode, uint64_t after, loch_device *device)
{
    const loch_sim_fault fault = {
        .size = sizeof fault,
        .after = after,
        .mode = mode == TEST_FAILING_ONCE ? LOCH_SIM_FAULT_ONCE : LOCH_SIM_FAULT_FOREVER,
    };
    CHECK_OK(loch_sim_set_fault(device, mode == TEST_FAILING_NEVER ? NULL : &fault));
    sim_calls_before = sim_calls(device);
}

uint64_t test_sim_count(loch_device *device)
{
    return sim_calls(device) - sim_calls_before;
}

void test_faulty_set_on(test_failing mode, uint64_t after, loch_device *device)
{
    (void)device;
    test_faulty_set(mode, after);
}

uint64_t test_faulty_count_on(loch_device *device)
{
    (void)device;
    return test_faulty_count();
}
