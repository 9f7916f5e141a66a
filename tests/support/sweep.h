/* SPDX-License-Identifier: MIT */
/* What the fault tests do for every N: run the scenario while something fails, look at what it left, run it without. */
#ifndef LOCH_TEST_SWEEP_H
#define LOCH_TEST_SWEEP_H

#include "failing_heap.h"
#include "scenario.h"
#include <stdbool.h>

/* One sweep: a device, and the thing that fails. */
typedef struct test_sweep {
    const char *device, *other;
    bool (*is_clean)(loch_device *device); /* whether the device holds nothing; NULL when it cannot be asked */
    void (*set)(test_failing mode, uint64_t after, loch_device *device); /* sets the fault; FAILING_NEVER clears it */
    uint64_t (*count)(loch_device *device);                              /* things that could have failed since `set` */
    bool hold; /* the device stays open around each run: faults are set on it */
} test_sweep;

/* Runs it for every N, once and for good; fails the cmocka test at the first N that goes wrong. */
void test_sweep_run(const test_sweep *sweep);

/* `set` and `count` for a sweep over the library's own allocations, by the failing heap; the device does not matter. */
void test_host_set(test_failing mode, uint64_t after, loch_device *device);
uint64_t test_host_count(loch_device *device);

/* `set` and `count` for a sweep over the driver calls of a simulated device, by its own fault injection. */
void test_sim_set(test_failing mode, uint64_t after, loch_device *device);
uint64_t test_sim_count(loch_device *device);

/* The same over the calls of all faulty devices (faulty_driver.h). */
void test_faulty_set_on(test_failing mode, uint64_t after, loch_device *device);
uint64_t test_faulty_count_on(loch_device *device);

#endif
