/* SPDX-License-Identifier: MIT */
/* Shared by the tests of the registry: allocators that are registered, found and counted in one line each. */
#ifndef LOCH_TEST_REGISTRY_FIXTURE_H
#define LOCH_TEST_REGISTRY_FIXTURE_H

#include "sim_fixture.h"
#include "sweep.h"
#include <pthread.h>
#include <stdatomic.h>

#define DEVICE "sim:64MiB,backed"

__attribute__((unused)) static const loch_attributes own = {0, 0};

__attribute__((unused)) static const loch_attributes on_host = {LOCH_ATTRIBUTE_ON_HOST, 0};

__attribute__((unused)) static const loch_attributes pinned = {LOCH_ATTRIBUTE_ON_HOST | LOCH_ATTRIBUTE_GPU_COMPATIBLE,
                                                               0};

__attribute__((unused)) static loch_allocator *direct(loch_device *device, const char *name)
{
    loch_allocator *allocator;
    CHECK_OK(loch_direct_create(device, name, NULL, &allocator));
    return allocator;
}

__attribute__((unused)) static loch_allocator *get(loch_device *device, loch_attributes attributes)
{
    loch_allocator *allocator;
    CHECK_OK(loch_device_acquire_allocator(device, attributes, LOCH_FALLBACK_NONE, &allocator));
    return allocator;
}

/* Registers a new allocator and gives the reference up. */
__attribute__((unused)) static void add(loch_device *device, const char *name, int priority)
{
    loch_allocator *allocator = direct(device, name);
    CHECK_OK(loch_registry_add(allocator, NULL, priority));
    loch_allocator_release(allocator);
}

__attribute__((unused)) static void shut_down(size_t expected)
{
    size_t leaks = 99;
    CHECK_OK(loch_registry_clear(NULL, NULL, &leaks));
    assert_int_equal(leaks, expected);
}

typedef struct workshop {
    atomic_int calls;
    loch_status status;      /* what it returns */
    bool gives_nothing;      /* and yet LOCH_OK */
    const char *wraps;       /* the name that it looks for and wraps; "" for the device's best */
    pthread_barrier_t *meet; /* waited at before it looks */
} workshop;

__attribute__((unused)) static loch_status work(loch_device *device, loch_attributes attributes, void *user,
                                                loch_allocator **out)
{
    workshop *shop = user;
    atomic_fetch_add(&shop->calls, 1);
    if (attributes.bits & LOCH_ATTRIBUTES_OF_DEVICE) return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "no such bits");
    if (shop->status != LOCH_OK) return loch_error_set(shop->status, NULL, 0, "the workshop is closed");
    if (shop->gives_nothing) return LOCH_OK;
    if (!shop->wraps) return loch_direct_create(device, "made", NULL, out);
    if (shop->meet) pthread_barrier_wait(shop->meet);
    loch_allocator *inner;
    loch_status status = *shop->wraps ? loch_registry_acquire(shop->wraps, device, &inner)
                                      : loch_device_acquire_allocator(device, attributes, LOCH_FALLBACK_NONE, &inner);
    if (status == LOCH_E_NOT_FOUND) return loch_direct_create(device, "alone", NULL, out);
    if (status == LOCH_OK) {
        status = loch_tracking_create(inner, "around", NULL, out);
        loch_allocator_release(inner);
    }
    return status;
}

__attribute__((unused)) static int install(void **state)
{
    (void)state;
    return test_heap_install() == LOCH_OK ? 0 : -1;
}

#endif
