/* SPDX-License-Identifier: MIT */
/* Shared by the tests of simulated devices: a device for each test that must leave nothing behind, and short ways to
 * queue kernels and to read figures. */
#ifndef LOCH_TEST_SIM_FIXTURE_H
#define LOCH_TEST_SIM_FIXTURE_H

#include "test.h"

#define SIM_LAG 1000 /* of the devices that the tests open */

static loch_host_usage sim_usage_before = {.size = sizeof sim_usage_before};

__attribute__((unused)) static int sim_setup(void **state)
{
    (void)state;
    CHECK_OK(loch_host_get_usage(&sim_usage_before));
    return 0;
}

/* Every test has released its devices by now: the bookkeeping is what it was. */
__attribute__((unused)) static int sim_teardown(void **state)
{
    (void)state;
    loch_host_usage now = {.size = sizeof now};
    CHECK_OK(loch_host_get_usage(&now));
    if (now.blocks == sim_usage_before.blocks && now.bytes == sim_usage_before.bytes) return 0;
    print_error("%zu pieces of bookkeeping were left behind\n", now.blocks - sim_usage_before.blocks);
    return -1;
}

#define SIM_TEST(function) cmocka_unit_test_setup_teardown(function, sim_setup, sim_teardown)

__attribute__((unused)) static loch_device *sim_open(const char *name)
{
    loch_device *device;
    CHECK_OK(loch_device_open(name, &device));
    return device;
}

/* A stream that has nothing to do with the default one, or is ordered with it. */
__attribute__((unused)) static loch_stream *sim_stream(loch_device *device, loch_stream_order order)
{
    loch_stream *stream;
    const loch_stream_options options = {.size = sizeof options, .order = order};
    CHECK_OK(loch_stream_create(device, &options, &stream));
    return stream;
}

__attribute__((unused)) static loch_event *sim_event(loch_device *device)
{
    loch_event *event;
    CHECK_OK(loch_event_create(device, LOCH_EVENT_TIMED, &event));
    return event;
}

__attribute__((unused)) static void *sim_raw(loch_device *device, size_t bytes)
{
    void *address;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_DEVICE, bytes, 0, &address));
    return address;
}

__attribute__((unused)) static void *sim_pinned(loch_device *device, size_t bytes)
{
    void *address;
    CHECK_OK(loch_raw_alloc(device, LOCH_MEMORY_PINNED, bytes, 0, &address));
    return address;
}

__attribute__((unused)) static uint64_t sim_now(loch_device *device)
{
    uint64_t ns;
    CHECK_OK(loch_sim_get_time(device, &ns));
    return ns;
}

__attribute__((unused)) static uint64_t sim_number(loch_stream *stream)
{
    uint64_t number;
    CHECK_OK(loch_sim_get_stream_number(stream, &number));
    return number;
}

__attribute__((unused)) static loch_sim_stats sim_stats(loch_device *device)
{
    loch_sim_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_sim_get_stats(device, &stats));
    return stats;
}

/* A kernel that takes `ns` and touches nothing. */
__attribute__((unused)) static loch_status sim_busy(loch_stream *stream, uint64_t ns)
{
    const loch_sim_kernel kernel = {.size = sizeof kernel, .name = "busy", .duration_ns = ns};
    return loch_sim_launch(stream, &kernel);
}

__attribute__((unused)) static loch_status sim_reads(loch_stream *stream, const void *address, size_t bytes)
{
    const loch_sim_range range = {address, bytes};
    const loch_sim_kernel kernel = {.size = sizeof kernel, .name = "reader", .reads = &range, .reads_count = 1};
    return loch_sim_launch(stream, &kernel);
}

__attribute__((unused)) static loch_status sim_writes(loch_stream *stream, const void *address, size_t bytes)
{
    const loch_sim_range range = {address, bytes};
    const loch_sim_kernel kernel = {.size = sizeof kernel, .name = "writer", .writes = &range, .writes_count = 1};
    return loch_sim_launch(stream, &kernel);
}

/* The number of findings; the first one in `out` unless NULL. */
__attribute__((unused)) static size_t sim_violations(loch_device *device, loch_sim_violation *out)
{
    size_t count;
    CHECK_OK(test_sim_violations(device, out, out ? 1 : 0, &count));
    return count;
}

/* Waits for the device, and fails if a simulated one has seen uses without order. */
__attribute__((unused)) static void sim_expect_order(loch_device *device)
{
    loch_sim_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_device_sync(device));
    if (loch_sim_get_stats(device, &stats) != LOCH_OK || !stats.violations) return;
    loch_sim_violation first;
    const size_t count = sim_violations(device, &first);
    fail_msg("%zu uses without order, the first: %s", count, first.text);
}

#endif
