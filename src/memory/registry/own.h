/* SPDX-License-Identifier: MIT */
/* What the registry keeps for the devices' default allocators (defaults.c). */
#ifndef LOCHI_REGISTRY_OWN_H
#define LOCHI_REGISTRY_OWN_H

#include <loch/registry.h>

/* Gives the library's own allocator for a device and attributes, made by `make`: once under any race. All callers pass one
 * function. */
loch_status lochi_registry_get_own(loch_device *device, loch_attributes attributes, loch_allocator_factory *make,
                                   loch_allocator **out);

/* Returns the allocator that was set as the device's default, if it serves the attributes; else NULL. The reference is the
 * caller's. */
loch_allocator *lochi_registry_get_set(const loch_device *device, loch_attributes attributes);

/* Sets the default allocator of a device, or with NULL gives it up, and with it what the library made for the device. */
loch_status lochi_registry_set(loch_device *device, loch_allocator *allocator);

#endif
