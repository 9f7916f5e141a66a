/* SPDX-License-Identifier: MIT */
/* A driver outside the library: "faulty:NAME" opens the device NAME of another driver, forwards every slot to it, and
 * makes a chosen call fail. It uses only the public headers, so it is also an example of a driver that is built on
 * another. */
#ifndef LOCH_TEST_FAULTY_DRIVER_H
#define LOCH_TEST_FAULTY_DRIVER_H

#include "failing_heap.h"
#include <loch/driver.h>

/* Registers it, once a process. */
loch_status test_faulty_register(void);

/* From now on: `after` calls of all faulty devices together succeed, then they fail as said. The count starts again.
 * Calls that give something back are not counted and never fail; those that wait do so first and then fail. */
void test_faulty_set(test_failing mode, uint64_t after);

/* Calls since test_faulty_set, and devices that are open. */
uint64_t test_faulty_count(void);
uint64_t test_faulty_open(void);

#endif
