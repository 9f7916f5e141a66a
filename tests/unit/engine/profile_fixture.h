/* SPDX-License-Identifier: MIT */
/* Shared by the tests of scopes and censuses. */
#ifndef LOCH_TEST_PROFILE_FIXTURE_H
#define LOCH_TEST_PROFILE_FIXTURE_H

#include "json_check.h"
#include "sim_fixture.h"
#include "sweep.h"
#include <inttypes.h>

#define DEVICE "sim:256MiB"

__attribute__((unused)) static loch_allocator *open_direct(void)
{
    loch_device *device = sim_open(DEVICE);
    loch_allocator *allocator;
    CHECK_OK(loch_direct_create(device, "direct", NULL, &allocator));
    loch_device_release(device);
    return allocator;
}

__attribute__((unused)) static void *take(loch_allocator *allocator, size_t bytes, loch_tag tag)
{
    const loch_request request = {.size = sizeof request, .bytes = bytes, .tag = tag};
    void *block;
    CHECK_OK(loch_allocator_alloc(allocator, &request, &block));
    return block;
}

__attribute__((unused)) static int install(void **state)
{
    (void)state;
    return test_heap_install() == LOCH_OK ? 0 : -1;
}

#endif
