/* SPDX-License-Identifier: MIT */
/* A program in small that uses everything a device can do, written as programs are: leave at the first failure through
 * one label that gives everything back. The fault tests run it again and again while something fails. */
#ifndef LOCH_TEST_SCENARIO_H
#define LOCH_TEST_SCENARIO_H

#include <loch/loch.h>
#include <loch/driver.h>

/* How one run ended. */
typedef struct test_scenario {
    loch_status status; /* of the first call that failed, E_CORRUPT when memory did not hold what it should */
    const char *call;   /* the text of that call */
    loch_error error;   /* the thread's record right after it */
    const char *kept;   /* text of a call that should have given something back and failed, NULL for none */
} test_scenario;

/* Opens `name` and uses it together with the device `other`. */
void test_scenario_run(test_scenario *run, const char *name, const char *other);

#endif
