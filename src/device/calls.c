/* SPDX-License-Identifier: MIT */
/* Counting driver calls: how many of each kind, how long they took, and their modelled cost on simulated devices. */
#include "device/calls.h"
#include "base/fail.h"
#include "base/logging.h"
#include <loch/host.h>
#include <string.h>

static const char *const call_names[] = {
#define CALL_NAME(name) #name,
    LOCH_DRIVER_CALLS(CALL_NAME)
#undef CALL_NAME
};

const char *loch_driver_call_name(loch_driver_call call)
{
    return (unsigned)call < LOCH_CALL_COUNT ? call_names[call] : NULL;
}

static _Atomic(lochi_call_listener *) call_listener;

void lochi_calls_listen(lochi_call_listener *listener)
{
    atomic_store_explicit(&call_listener, listener, memory_order_release);
}

lochi_call_start lochi_call_begin(loch_device *device, loch_driver_call call)
{
    lochi_call_start start = {0, 0};
    atomic_fetch_add_explicit(&device->calls[call].count, 1, memory_order_relaxed);
    LOCHI_LOG(DEBUG, "%s %s", device->name, loch_driver_call_name(call));
    if (atomic_load_explicit(&device->measuring, memory_order_relaxed)) start.host_ns = loch_host_now_ns();
    if (atomic_load_explicit(&call_listener, memory_order_relaxed) && device->self)
        start.device_ns_plus_one = device->driver->now_ns(device->self) + 1;
    return start;
}

void lochi_call_end(loch_device *device, loch_driver_call call, lochi_call_start start)
{
    if (start.host_ns)
        atomic_fetch_add_explicit(&device->calls[call].ns, loch_host_now_ns() - start.host_ns, memory_order_relaxed);
    if (!start.device_ns_plus_one) return;
    lochi_call_listener *listener = atomic_load_explicit(&call_listener, memory_order_acquire);
    if (listener) listener(device, call, device->driver->now_ns(device->self) + 1 - start.device_ns_plus_one);
}

loch_status loch_device_walk_calls(loch_device *device, loch_call_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!device || !visitor) return LOCH_FAIL(INVALID, "loch_device_walk_calls needs a device and a visitor");
    uint64_t ns[LOCH_CALL_COUNT], real_ns[LOCH_CALL_COUNT];
    for (size_t i = 0; i < LOCH_CALL_COUNT; i++)
        ns[i] = real_ns[i] = atomic_load_explicit(&device->calls[i].ns, memory_order_relaxed);
    lochi_lock_take(&device->lock);
    device->driver->call_costs(device->self, ns);
    for (size_t i = 0; i < LOCH_CALL_COUNT; i++)
        ns[i] -= device->cost_base[i];
    lochi_lock_drop(&device->lock);
    for (size_t i = 0; i < LOCH_CALL_COUNT; i++) {
        const loch_call_count count = {.name = loch_driver_call_name((loch_driver_call)i),
                                       .count = atomic_load_explicit(&device->calls[i].count, memory_order_relaxed),
                                       .ns = ns[i],
                                       .real_ns = real_ns[i]};
        LOCH_TRY_RETURN(visitor(&count, user));
    }
    return LOCH_OK;
}

loch_status loch_device_measure_calls(loch_device *device, loch_measure measure)
{
    LOCHI_NOT_CANCELLED;
    if (!device) return LOCH_FAIL(INVALID, "loch_device_measure_calls needs a device");
    lochi_lock_take(&device->lock);
    memset(device->cost_base, 0, sizeof device->cost_base);
    device->driver->call_costs(device->self, device->cost_base);
    lochi_lock_drop(&device->lock);
    for (size_t i = 0; i < LOCH_CALL_COUNT; i++) {
        atomic_store_explicit(&device->calls[i].count, 0, memory_order_relaxed);
        atomic_store_explicit(&device->calls[i].ns, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&device->measuring, measure == LOCH_MEASURE_ON, memory_order_relaxed);
    return LOCH_OK;
}
