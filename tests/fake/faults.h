/* SPDX-License-Identifier: MIT */
/* Faults of the driver for tests, for sweeps over its entry points. Each sets out from a driver that holds nothing. */
#ifndef LOCH_TEST_FAKE_FAULTS_H
#define LOCH_TEST_FAKE_FAULTS_H

#include "open_control.h"
#include "support/sweep.h"

static void fault_set(test_failing mode, uint64_t after, loch_device *unused)
{
    (void)unused;
    const fake_cuda_fault fault = {.after = after, .is_forever = mode == TEST_FAILING_FOREVER, .code = 999};
    control.set_fault(mode == TEST_FAILING_NEVER ? NULL : &fault);
    static char when[80] = "before the first run";
    control_expect_empty(when);
    snprintf(when, sizeof when, "after a fault of kind %d at call %llu", (int)mode, (unsigned long long)after);
}

static uint64_t fault_count(loch_device *unused)
{
    (void)unused;
    return control.calls();
}

__attribute__((unused)) static const test_faults driver_faults = {
    .name = "entry points", .set = fault_set, .count = fault_count};

#endif
