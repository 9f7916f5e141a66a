/* SPDX-License-Identifier: MIT */
/* Shared by the tests of visitors: a driver that refuses to give back while told to, and meetings of threads inside of
 * it. */
#ifndef LOCH_TEST_OBSERVER_FIXTURE_H
#define LOCH_TEST_OBSERVER_FIXTURE_H

#include "sim_fixture.h"
#include "sweep.h"
#include <pthread.h>
#include <stdatomic.h>

#define DEVICE "sim:64MiB,granule=64KiB,backed"
#define GRANULE (64 * TEST_KIB)

/* The CPU's driver, except that frees are refused while a flag is set. */
__attribute__((unused)) static const loch_driver *willing;

__attribute__((unused)) static bool is_stubborn;

/* Two threads meet twice: while one is inside something, the other does what it has to. */
typedef struct meeting {
    pthread_barrier_t entered, leave;
} meeting;

__attribute__((unused)) static meeting *inside_driver; /* where map and unmap wait, unless NULL */

__attribute__((unused)) static void meet(meeting *m)
{
    if (!m) return;
    pthread_barrier_wait(&m->entered);
    pthread_barrier_wait(&m->leave);
}

__attribute__((unused)) static loch_status
meeting_map(void *self, void *address, size_t bytes, loch_driver_handle handle, void *const *peers, size_t peers_count)
{
    meet(inside_driver);
    return willing->map(self, address, bytes, handle, peers, peers_count);
}

__attribute__((unused)) static loch_status stubborn_raw_free(void *self, void *address, size_t bytes)
{
    if (is_stubborn) return loch_error_set(LOCH_E_DRIVER, "stubborn", 1, "no");
    return willing->raw_free(self, address, bytes);
}

__attribute__((unused)) static loch_status stubborn_unmap(void *self, void *address, size_t bytes,
                                                          loch_driver_handle handle)
{
    if (is_stubborn) return loch_error_set(LOCH_E_DRIVER, "stubborn", 2, "no");
    meet(inside_driver);
    return willing->unmap(self, address, bytes, handle);
}

/* A call in a thread of its own. */
typedef struct call {
    pthread_t thread;
    loch_device *device;
    void *address;
    loch_handle *handle;
    meeting *room;
    atomic_int heard, gone, wrong;
    loch_status status;
} call;

__attribute__((unused)) static int install(void **state)
{
    (void)state;
    willing = loch_driver_find("cpu");
    loch_driver stubborn = *willing;
    stubborn.name = "stubborn";
    stubborn.raw_free = stubborn_raw_free;
    stubborn.map = meeting_map;
    stubborn.unmap = stubborn_unmap;
    if (test_heap_install() != LOCH_OK) return -1;
    return loch_driver_register(&stubborn) == LOCH_OK ? 0 : -1;
}

#endif
