/* SPDX-License-Identifier: MIT */
/* Shared by the tests of buffers and tensors: each leaves no bookkeeping, no live block and no waiting memory behind,
 * and the checkers of simulated devices have found nothing. */
#ifndef LOCH_TEST_TENSOR_FIXTURE_H
#define LOCH_TEST_TENSOR_FIXTURE_H

#include "sim_fixture.h"

/* Ends what a test left waiting, gives up default allocators, and compares with what was there before. */
__attribute__((unused)) static int tensor_teardown(void **state)
{
    size_t waiting, leaks;
    if (loch_buffer_collect(LOCH_WAIT_END, &waiting) != LOCH_OK || waiting) return -1;
    if (loch_registry_clear(NULL, NULL, &leaks) != LOCH_OK || leaks) {
        print_error("%zu blocks were left behind\n", leaks);
        return -1;
    }
    return sim_teardown(state);
}

#define TENSOR_TEST(function) cmocka_unit_test_setup_teardown(function, sim_setup, tensor_teardown)

/* The default allocator of a device; the caller releases it. */
__attribute__((unused)) static loch_allocator *tensor_allocator(loch_device *device)
{
    loch_allocator *allocator;
    CHECK_OK(loch_device_acquire_allocator(device, (loch_attributes){0}, LOCH_FALLBACK_NONE, &allocator));
    return allocator;
}

__attribute__((unused)) static size_t tensor_live_blocks(loch_allocator *allocator)
{
    loch_stats stats = {.size = sizeof stats};
    CHECK_OK(loch_allocator_get_stats(allocator, &stats));
    return (size_t)stats.blocks;
}

/* Counts how often a deleter was called, and with what. */
typedef struct tensor_deletions {
    size_t count;
    void *address;
    size_t bytes;
} tensor_deletions;

__attribute__((unused)) static void tensor_delete(void *address, size_t bytes, void *user)
{
    tensor_deletions *deletions = user;
    deletions->count++;
    deletions->address = address;
    deletions->bytes = bytes;
}

#endif
