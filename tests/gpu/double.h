/* SPDX-License-Identifier: MIT */
/* Whether the device is the test double of tests/fake. What needs a compiler of kernels or NVIDIA's libraries is
 * skipped there. */
#ifndef LOCH_TEST_DOUBLE_H
#define LOCH_TEST_DOUBLE_H

#include "support/test.h"

/* Prints `reason` if it is, and there is one. */
__attribute__((unused)) static bool is_test_double(const loch_device *tested, const char *reason)
{
    loch_device_properties found = {.size = sizeof found};
    if (loch_device_get_properties(tested, &found) != LOCH_OK) return false;
    if (strcmp(found.driver, "cuda") != 0 || !strstr(found.model, "(test double)")) return false;
    if (reason) fprintf(stderr, "skipped: %s, and %s is a %s\n", reason, loch_device_get_name(tested), found.model);
    return true;
}

/* Chooses an amount of work that takes long on a GPU, or as long on the host. */
__attribute__((unused)) static size_t gpu_or_double(const loch_device *tested, size_t gpu, size_t host)
{
    return is_test_double(tested, NULL) ? host : gpu;
}

#endif
