/* SPDX-License-Identifier: MIT */
/* The part of the registry that serves the default allocators of devices (defaults.c). */
#include "memory/registry/own.h"
#include "base/fail.h"
#include "base/heap.h"
#include "device/device.h"
#include "memory/registry/making.h"

loch_status lochi_registry_get_own(loch_device *device, loch_attributes attributes, loch_allocator_factory *make,
                                   loch_allocator **out)
{
    lochi_lock_take(&lochi_registry.lock);
    /* Set once, because it is read without the lock. */
    if (!lochi_registry.own.factory) lochi_registry.own.factory = make;
    const loch_status status = lochi_registry_get_made(&lochi_registry.own, device, attributes, out);
    lochi_lock_drop(&lochi_registry.lock);
    return status;
}

loch_allocator *lochi_registry_get_set(const loch_device *device, loch_attributes attributes)
{
    loch_allocator *found = NULL;
    lochi_lock_take(&lochi_registry.lock);
    for (const lochi_registry_made *made = lochi_registry.set.made; made && !found; made = made->next)
        if (made->device == device && loch_attributes_at_most_as_strict(attributes, made->attributes))
            found = loch_allocator_retain(made->allocator);
    lochi_lock_drop(&lochi_registry.lock);
    return found;
}

/* Moves the finished allocators of a device from an entry to another list. */
static void own_detach(lochi_registry_entry *entry, const loch_device *device, lochi_registry_made **to)
{
    lochi_lock_assert_held(&lochi_registry.lock);
    for (lochi_registry_made **link = &entry->made; *link;) {
        lochi_registry_made *made = *link;
        if (made->device != device || !made->allocator) { /* unfinished ones stay, because their makers need them */
            link = &made->next;
            continue;
        }
        *link = made->next;
        made->next = *to;
        *to = made;
    }
}

loch_status lochi_registry_set(loch_device *device, loch_allocator *allocator)
{
    lochi_registry_entry gone = {0};
    lochi_registry_made *made = NULL;
    if (allocator) {
        made = lochi_zalloc(sizeof *made);
        if (!made) return LOCH_FAIL(HOST_MEMORY, "no host memory to note the allocator of %s", device->name);
        made->device = loch_device_retain(device);
        made->attributes = loch_allocator_get_attributes(allocator);
        made->allocator = loch_allocator_retain(allocator);
    }
    lochi_lock_take(&lochi_registry.lock);
    own_detach(&lochi_registry.set, device, &gone.made);
    if (made) {
        made->next = lochi_registry.set.made;
        lochi_registry.set.made = made;
    } else {
        own_detach(&lochi_registry.own, device, &gone.made);
    }
    lochi_lock_drop(&lochi_registry.lock);
    lochi_registry_empty(&gone);
    return LOCH_OK;
}
