/* SPDX-License-Identifier: MIT */
/* Raw memory: one driver call for each block, entered in the table of ranges. A block leaves the table before the
 * driver frees it, so that a second free cannot reach the driver. If the driver refuses, the block is entered again.
 * Observers are called after a block has entered the table and before it leaves. */
#include "device/raw.h"
#include "base/checked.h"
#include "base/fail.h"
#include "base/heap.h"
#include "kit/sized.h"
#include "kit/text.h"
#include "device/calls.h"
#include "device/observers.h"
#include <string.h>

const char *loch_memory_kind_name(loch_memory_kind kind)
{
    static const char *const names[] = {"device", "pinned", "managed", "registered", "host"};
    return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : "unknown";
}

static loch_status raw_take(loch_device *device, loch_memory_kind kind, size_t bytes, size_t alignment, void **out)
{
    loch_status status;
    if (kind == LOCH_MEMORY_DEVICE)
        LOCHI_CALL(status, device, raw_alloc, (device->self, bytes, alignment, out));
    else if (kind == LOCH_MEMORY_PINNED)
        LOCHI_CALL(status, device, pinned_alloc, (device->self, bytes, alignment, out));
    else
        LOCHI_CALL(status, device, managed_alloc, (device->self, bytes, alignment, out));
    return status;
}

static loch_status raw_give_back(const lochi_range *range)
{
    loch_device *device = range->device;
    void *address = (void *)lochi_range_start(range);
    loch_status status;
    if (range->kind == LOCH_MEMORY_DEVICE)
        LOCHI_CALL(status, device, raw_free, (device->self, address, range->bytes));
    else if (range->kind == LOCH_MEMORY_PINNED)
        LOCHI_CALL(status, device, pinned_free, (device->self, address, range->bytes));
    else
        LOCHI_CALL(status, device, managed_free, (device->self, address, range->bytes));
    return status;
}

/* Enters a new range. A driver that returns an address twice is broken: E_DRIVER. The new range is then neither
 * entered nor given back, because its memory belongs to the first caller. */
static loch_status raw_enter(lochi_range *range)
{
    lochi_ranges_lock();
    const bool is_new = lochi_ranges_insert(range);
    const uint64_t newest = lochi_observers_now();
    lochi_ranges_unlock();
    if (is_new) {
        lochi_observers_tell_taken(range->device, range->kind, lochi_range_start(range), range->bytes, NULL, newest);
        return LOCH_OK;
    }
    return LOCH_FAIL(DRIVER, "driver \"%s\" returned the address %p twice", range->device->driver->name,
                     (void *)lochi_range_start(range));
}

loch_status loch_raw_alloc(loch_device *device, loch_memory_kind kind, size_t bytes, size_t alignment, void **out)
{
    if (!out) return LOCH_FAIL(INVALID, "loch_raw_alloc needs an out pointer");
    *out = NULL;
    if (!device) return LOCH_FAIL(INVALID, "loch_raw_alloc needs a device");
    if ((unsigned)kind > LOCH_MEMORY_MANAGED)
        return LOCH_FAIL(INVALID, "memory of kind %s cannot be allocated", loch_memory_kind_name(kind));
    if (alignment && !lochi_is_power_of_two(alignment))
        return LOCH_FAIL(INVALID, "an alignment of %zu is not a power of two", alignment);
    if (!bytes) return LOCH_OK;

    lochi_range *range = lochi_zalloc(sizeof *range);
    if (!range) return LOCH_FAIL(HOST_MEMORY, "no host memory to record a block of %s", LOCHI_SIZE(bytes));
    void *address = NULL;
    loch_status status = raw_take(device, kind, bytes, alignment, &address);
    if (status != LOCH_OK) {
        lochi_free(range);
        return status;
    }
    range->node.key = (uintptr_t)address;
    range->bytes = bytes;
    range->device = loch_device_retain(device);
    range->type = LOCHI_RANGE_RAW;
    range->kind = kind;
    status = raw_enter(range);
    if (status != LOCH_OK) {
        lochi_free(range);
        loch_device_release(device);
        return status;
    }
    *out = address;
    return LOCH_OK;
}

/* Removes a range of one type from the table by its first address, after calling the observers. */
static loch_status raw_leave(const void *address, lochi_range_type type, lochi_range **out)
{
    const uintptr_t key = (uintptr_t)address;
    loch_status status = LOCH_OK;
    lochi_ranges_lock();
    lochi_range *range =
        type == LOCHI_RANGE_REGISTRATION ? lochi_ranges_find_registration(key) : lochi_ranges_find_memory(key);
    if (!range || range->type != type || range->is_going)
        status = LOCH_FAIL(FOREIGN, "%p was not %s here, or is no longer", address,
                           type == LOCHI_RANGE_REGISTRATION ? "registered" : "handed out");
    else if (lochi_range_start(range) != key)
        status = LOCH_FAIL(INTERIOR, "%p lies %zu bytes inside the block of %s at %p", address,
                           (size_t)(key - lochi_range_start(range)), LOCHI_SIZE(range->bytes),
                           (void *)lochi_range_start(range));
    if (status == LOCH_OK) {
        range->is_going = true;
        if (type == LOCHI_RANGE_RAW) lochi_observers_tell_going(range->device, range->kind, key, range->bytes, NULL);
        lochi_ranges_remove(range);
    }
    lochi_ranges_unlock();
    *out = status == LOCH_OK ? range : NULL;
    return status;
}

/* Frees a range that its driver has taken back, or enters it again if the driver refused. */
static loch_status raw_finish(lochi_range *range, loch_status status)
{
    if (status != LOCH_OK) {
        range->is_going = false;
        lochi_ranges_lock();
        lochi_ranges_insert(range); /* cannot fail: the driver still holds the addresses */
        const uint64_t newest = range->type == LOCHI_RANGE_RAW ? lochi_observers_now() : 0;
        lochi_ranges_unlock();
        lochi_observers_tell_taken(range->device, range->kind, lochi_range_start(range), range->bytes, NULL, newest);
        return status;
    }
    loch_device *device = range->device;
    lochi_free(range);
    loch_device_release(device);
    return LOCH_OK;
}

loch_status loch_raw_free(void *address)
{
    if (!address) return LOCH_OK;
    lochi_range *range;
    LOCH_TRY_RETURN(raw_leave(address, LOCHI_RANGE_RAW, &range));
    return raw_finish(range, raw_give_back(range));
}

loch_status loch_raw_register(loch_device *device, void *address, size_t bytes)
{
    if (!device || !address || !bytes)
        return LOCH_FAIL(INVALID, "loch_raw_register needs a device, an address and a size above 0");
    if (!lochi_range_fits(address, bytes))
        return LOCH_FAIL(OVERFLOW, "%zu bytes at %p reach beyond the end of the address space", bytes, address);
    if (!loch_device_can(device, LOCH_CAN_REGISTER))
        return LOCH_FAIL(UNSUPPORTED, "%s does not register host memory", device->name);
    lochi_range *range = lochi_zalloc(sizeof *range);
    if (!range) return LOCH_FAIL(HOST_MEMORY, "no host memory to record a registration");
    *range = (lochi_range){.node.key = (uintptr_t)address,
                           .bytes = bytes,
                           .device = device,
                           .type = LOCHI_RANGE_REGISTRATION,
                           .kind = LOCH_MEMORY_REGISTERED};
    lochi_ranges_lock();
    const bool is_new = lochi_ranges_insert(range);
    lochi_ranges_unlock();
    if (!is_new) {
        lochi_free(range);
        return LOCH_FAIL(EXISTS, "part of the %s at %p is already registered", LOCHI_SIZE(bytes), address);
    }
    loch_status status;
    LOCHI_CALL(status, device, host_register, (device->self, address, bytes));
    if (status != LOCH_OK) {
        lochi_ranges_lock();
        lochi_ranges_remove(range);
        lochi_ranges_unlock();
        lochi_free(range);
        return status;
    }
    loch_device_retain(device);
    return LOCH_OK;
}

loch_status loch_raw_unregister(void *address)
{
    if (!address) return LOCH_FAIL(INVALID, "loch_raw_unregister needs an address");
    lochi_range *range;
    LOCH_TRY_RETURN(raw_leave(address, LOCHI_RANGE_REGISTRATION, &range));
    loch_status status;
    LOCHI_CALL(status, range->device, host_unregister, (range->device->self, address, range->bytes));
    return raw_finish(range, status);
}

loch_status lochi_ordered_alloc(loch_stream *stream, size_t bytes, void **out)
{
    loch_device *device = stream->device;
    if (!loch_device_can(device, LOCH_CAN_ORDERED)) return raw_take(device, LOCH_MEMORY_DEVICE, bytes, 0, out);
    loch_status status;
    LOCHI_CALL(status, device, ordered_alloc, (device->self, bytes, stream->native, out));
    return status;
}

loch_status lochi_ordered_free(loch_stream *stream, void *address, size_t bytes)
{
    loch_device *device = stream->device;
    loch_status status = LOCH_OK;
    if (loch_device_can(device, LOCH_CAN_ORDERED)) {
        LOCHI_CALL(status, device, ordered_free, (device->self, address, bytes, stream->native));
        return status;
    }
    const loch_status sync_status = loch_stream_sync(stream);
    LOCHI_CALL(status, device, raw_free, (device->self, address, bytes));
    return sync_status != LOCH_OK ? sync_status : status;
}

loch_status loch_address_query(const void *address, loch_address_info *out)
{
    if (!address || !lochi_sized_is_set(out))
        return LOCH_FAIL(INVALID, "asking for an address needs one, and a struct whose size is set");
    loch_address_info info = {.size = sizeof info};
    lochi_place place;
    const loch_status status = lochi_ranges_locate(address, 1, &place);
    if (status == LOCH_OK)
        info = (loch_address_info){sizeof info, place.device, place.kind, (void *)place.start, place.bytes};
    lochi_sized_write(out, &info, sizeof info);
    return status;
}
