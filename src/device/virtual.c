/* SPDX-License-Identifier: MIT */
/* Reservations and mappings. Every call checks the table of ranges first and enters its claim
 * there before it calls the driver, so that two callers cannot claim the same addresses. If the driver refuses, the
 * claim is removed. Observers are called after the driver has mapped memory, and before the driver unmaps it; if it
 * then refuses, observers are called for the memory again. */
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "kit/text.h"
#include "device/calls.h"
#include "device/handle.h"
#include "device/observers.h"
#include "device/virtual.h"
#include <string.h>

/* --- reservations --- */

loch_status loch_virtual_reserve(loch_device *device, size_t bytes, size_t alignment, void **out)
{
    if (out) *out = NULL;
    if (!device || !out) return LOCH_FAIL(INVALID, "loch_virtual_reserve needs a device and an out pointer");
    const size_t granule = device->properties.granule_bytes;
    if (!(device->properties.capabilities & LOCH_CAN_VIRTUAL))
        return LOCH_FAIL(UNSUPPORTED, "%s has no virtual memory", device->name);
    if (!bytes || !lochi_is_multiple(bytes, granule))
        return LOCH_FAIL(INVALID, "%zu bytes of addresses are not a multiple of the granule of %s", bytes,
                         LOCHI_SIZE(granule));
    if (alignment && !lochi_is_power_of_two(alignment))
        return LOCH_FAIL(INVALID, "an alignment of %zu is not a power of two", alignment);
    lochi_range *range = lochi_zalloc(sizeof *range);
    if (!range) return LOCH_FAIL(HOST_MEMORY, "no host memory to record a reservation");
    void *address;
    loch_status status;
    LOCHI_CALL(status, device, reserve, (device->self, bytes, alignment > granule ? alignment : granule, &address));
    if (status != LOCH_OK) {
        lochi_free(range);
        return status;
    }
    *range = (lochi_range){.node.key = (uintptr_t)address,
                           .bytes = bytes,
                           .device = loch_device_retain(device),
                           .type = LOCHI_RANGE_RESERVATION};
    lochi_ranges_lock();
    const bool is_new = lochi_ranges_insert(range);
    lochi_ranges_unlock();
    if (!is_new) { /* a broken driver: the first reservation stays, and the caller keeps the device open */
        lochi_free(range);
        loch_device_release(device);
        return LOCH_FAIL(DRIVER, "driver \"%s\" reserved the addresses at %p twice", device->driver->name, address);
    }
    *out = address;
    return LOCH_OK;
}

loch_status loch_virtual_unreserve(void *address)
{
    if (!address) return LOCH_OK;
    const uintptr_t key = (uintptr_t)address;
    loch_status status = LOCH_OK;
    lochi_ranges_lock();
    lochi_range *range = lochi_ranges_find_reservation(key);
    if (!range)
        status = LOCH_FAIL(FOREIGN, "no addresses are reserved at %p", address);
    else if (lochi_range_start(range) != key)
        status = LOCH_FAIL(INTERIOR, "%p lies inside the addresses reserved at %p", address,
                           (void *)lochi_range_start(range));
    else if (lochi_ranges_first_memory(key, lochi_range_end(range)))
        status = LOCH_FAIL(BUSY, "memory is still mapped in the addresses reserved at %p", address);
    else
        lochi_ranges_remove(range);
    lochi_ranges_unlock();
    if (status != LOCH_OK) return status;

    loch_device *device = range->device;
    LOCHI_CALL(status, device, unreserve, (device->self, address, range->bytes));
    if (status != LOCH_OK) {
        lochi_ranges_lock();
        lochi_ranges_insert(range); /* cannot fail: the driver still holds the addresses */
        lochi_ranges_unlock();
        return status;
    }
    lochi_free(range);
    loch_device_release(device);
    return LOCH_OK;
}

/* --- mappings --- */

/* Checks that [start, start + bytes) is reserved on `device` and that nothing is mapped there. */
static loch_status virtual_check_place(uintptr_t start, size_t bytes, const loch_device *device)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    const lochi_range *reservation = lochi_ranges_find_reservation(start);
    if (!reservation || bytes > lochi_range_end(reservation) - start)
        return LOCH_FAIL(OUT_OF_RANGE, "%s at %p do not lie in one reservation", LOCHI_SIZE(bytes), (void *)start);
    if (reservation->device != device)
        return LOCH_FAIL(OUT_OF_RANGE, "the addresses at %p are reserved on %s, but the handle belongs to %s",
                         (void *)start, reservation->device->name, device->name);
    if (!lochi_is_multiple(start, device->properties.granule_bytes))
        return LOCH_FAIL(INVALID, "%p is not a multiple of the granule of %s", (void *)start,
                         LOCHI_SIZE(device->properties.granule_bytes));
    if (lochi_ranges_first_memory(start, start + bytes))
        return LOCH_FAIL(EXISTS, "memory is already mapped in the %s at %p", LOCHI_SIZE(bytes), (void *)start);
    return LOCH_OK;
}

/* Enters the claim of a mapping. */
static loch_status virtual_claim(lochi_range *range, loch_handle *handle)
{
    lochi_ranges_lock();
    loch_status status = virtual_check_place(lochi_range_start(range), range->bytes, handle->device);
    if (status == LOCH_OK && handle->mappings && !loch_device_can(handle->device, LOCH_CAN_ALIAS))
        status =
            LOCH_FAIL(BUSY, "the handle is already mapped, and %s cannot map a handle twice", handle->device->name);
    if (status == LOCH_OK) {
        range->tenant = lochi_ranges_find_reservation(lochi_range_start(range))->tenant;
        lochi_ranges_insert(range);
        handle->mappings++;
    }
    lochi_ranges_unlock();
    return status;
}

static void virtual_unclaim(lochi_range *range)
{
    lochi_ranges_lock();
    lochi_ranges_remove(range);
    range->handle->mappings--;
    lochi_ranges_unlock();
}

/* Makes a usable mapping visible and calls the observers. */
static void virtual_show(lochi_range *range)
{
    lochi_ranges_lock();
    range->is_hidden = range->is_going = false;
    const uint64_t newest = lochi_observers_now();
    lochi_ranges_unlock();
    lochi_observers_tell_taken(range->device, range->kind, lochi_range_start(range), range->bytes, range->handle,
                               newest);
}

/* Hides a mapping: no other thread finds it, and all observers were called. Drops the lock of ranges during the
 * calls. */
static void virtual_hide(lochi_range *range)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    range->is_going = true;
    lochi_observers_tell_going(range->device, range->kind, lochi_range_start(range), range->bytes, range->handle);
    range->is_hidden = true;
}

/* Lists the `self` of each peer. E_INVALID for a peer of another driver. */
static loch_status virtual_read_peers(const loch_device *device, loch_device *const *peers, size_t peers_count,
                                      void ***out)
{
    *out = NULL;
    if (!peers_count) return LOCH_OK;
    if (!peers) return LOCH_FAIL(INVALID, "the list of %zu peers is NULL", peers_count);
    if (!loch_device_can(device, LOCH_CAN_PEER))
        return LOCH_FAIL(UNSUPPORTED, "%s does not support peers", device->name);
    for (size_t i = 0; i < peers_count; i++)
        if (!peers[i] || peers[i]->driver != device->driver)
            return LOCH_FAIL(INVALID, "peer %zu is not a device of driver \"%s\"", i, device->driver->name);
    void **selves = lochi_alloc_array(peers_count, sizeof *selves);
    if (!selves) return LOCH_FAIL(HOST_MEMORY, "no host memory for %zu peers", peers_count);
    for (size_t i = 0; i < peers_count; i++)
        selves[i] = peers[i]->self;
    *out = selves;
    return LOCH_OK;
}

loch_status loch_virtual_map(void *address, loch_handle *handle, loch_device *const *peers, size_t peers_count)
{
    if (!address || !handle) return LOCH_FAIL(INVALID, "loch_virtual_map needs an address and a handle");
    loch_device *device = handle->device;
    loch_status status;
    void **selves = NULL;
    lochi_range *range = lochi_zalloc(sizeof *range);
    if (!range) return LOCH_FAIL(HOST_MEMORY, "no host memory to record a mapping");
    *range = (lochi_range){.node.key = (uintptr_t)address,
                           .bytes = handle->bytes,
                           .device = device,
                           .type = LOCHI_RANGE_MAPPING,
                           .kind = LOCH_MEMORY_DEVICE,
                           .handle = handle,
                           .is_hidden = true};
    LOCH_TRY(virtual_read_peers(device, peers, peers_count, &selves), fail);
    LOCH_TRY(virtual_claim(range, handle), fail);
    LOCHI_CALL(status, device, map, (device->self, address, handle->bytes, handle->native, selves, peers_count));
    if (status != LOCH_OK) {
        virtual_unclaim(range);
        goto fail;
    }
    atomic_fetch_add_explicit(&device->calls[LOCH_CALL_access].count, 1 + peers_count, memory_order_relaxed);
    atomic_fetch_add_explicit(&handle->references, 1, memory_order_relaxed);
    virtual_show(range);
    lochi_free(selves);
    return LOCH_OK;
fail:
    lochi_free(selves);
    lochi_free(range);
    return status;
}

/* Finds the mapping that starts at `address`. */
static loch_status virtual_find_mapping(const void *address, lochi_range **out)
{
    lochi_lock_assert_held(&lochi_ranges_mutex);
    lochi_range *range = lochi_ranges_find_memory((uintptr_t)address);
    *out = range;
    if (!range || range->type != LOCHI_RANGE_MAPPING || range->is_hidden || range->is_going)
        return LOCH_FAIL(NOT_FOUND, "nothing is mapped at %p", address);
    if (lochi_range_start(range) != (uintptr_t)address)
        return LOCH_FAIL(INTERIOR, "%p lies inside the mapping of %s at %p", address, LOCHI_SIZE(range->bytes),
                         (void *)lochi_range_start(range));
    return LOCH_OK;
}

loch_status loch_virtual_unmap(void *address)
{
    if (!address) return LOCH_FAIL(INVALID, "loch_virtual_unmap needs an address");
    lochi_range *range;
    lochi_ranges_lock();
    loch_status status = virtual_find_mapping(address, &range);
    if (status == LOCH_OK) virtual_hide(range);
    lochi_ranges_unlock();
    if (status != LOCH_OK) return status;
    loch_handle *handle = range->handle;
    loch_device *device = handle->device;
    LOCHI_CALL(status, device, unmap, (device->self, address, handle->bytes, handle->native));
    if (status != LOCH_OK) {
        virtual_show(range);
        return status;
    }
    virtual_unclaim(range);
    lochi_free(range);
    lochi_handle_release(handle);
    return LOCH_OK;
}

loch_status lochi_virtual_remap(void *from, void *to)
{
    if (!from || !to) return LOCH_FAIL(INVALID, "moving a mapping needs two addresses");
    lochi_range *claim = lochi_zalloc(sizeof *claim), *range;
    if (!claim) return LOCH_FAIL(HOST_MEMORY, "no host memory to record a mapping");
    lochi_ranges_lock();
    loch_status status = virtual_find_mapping(from, &range);
    if (status == LOCH_OK && !loch_device_can(range->device, LOCH_CAN_REMAP))
        status = LOCH_FAIL(UNSUPPORTED, "%s cannot move a mapping", range->device->name);
    if (status == LOCH_OK) status = virtual_check_place((uintptr_t)to, range->bytes, range->device);
    if (status == LOCH_OK) {
        *claim = *range;
        claim->node.key = (uintptr_t)to;
        claim->is_hidden = true;
        claim->tenant = lochi_ranges_find_reservation((uintptr_t)to)->tenant;
        lochi_ranges_insert(claim);
        virtual_hide(range);
    }
    lochi_ranges_unlock();
    if (status == LOCH_OK) {
        loch_device *device = range->device;
        LOCHI_CALL(status, device, remap, (device->self, from, to, range->bytes, range->handle->native));
        lochi_range *gone = status == LOCH_OK ? range : claim;
        lochi_ranges_lock();
        lochi_ranges_remove(gone);
        lochi_ranges_unlock();
        virtual_show(gone == range ? claim : range);
        claim = gone;
    }
    lochi_free(claim);
    return status;
}

loch_status loch_virtual_find(const void *address, loch_virtual_info *out)
{
    if (!address || !lochi_sized_is_set(out))
        return LOCH_FAIL(INVALID, "loch_virtual_find needs an address and a struct whose size is set");
    loch_virtual_info info = {.size = sizeof info};
    lochi_ranges_lock();
    const lochi_range *range = lochi_ranges_find_memory((uintptr_t)address);
    if (range && range->type == LOCHI_RANGE_MAPPING && !range->is_hidden && !range->is_going)
        info = (loch_virtual_info){.size = sizeof info,
                                   .start = (void *)lochi_range_start(range),
                                   .bytes = range->bytes,
                                   .handle = range->handle,
                                   .device = range->device,
                                   .share = range->handle->share};
    lochi_ranges_unlock();
    lochi_sized_write(out, &info, sizeof info);
    return info.handle ? LOCH_OK : LOCH_FAIL(NOT_FOUND, "no handle is mapped at %p", address);
}
