/* SPDX-License-Identifier: MIT */
/* The part of the registry that serves the default allocators of devices (defaults.c). */
#ifndef LOCHI_REGISTRY_OWN_H
#define LOCHI_REGISTRY_OWN_H

#include <loch/registry.h>

/* Returns the library's own allocator for a device and attributes. `make` makes it, exactly once even if threads
 * race. All callers pass the same function. */
loch_status lochi_registry_get_own(loch_device *device, loch_attributes attributes, loch_allocator_factory *make,
                                   loch_allocator **out);

/* Returns the allocator that was set as the device's default, if it serves the attributes; else NULL. The caller
 * owns the reference. */
loch_allocator *lochi_registry_get_set(const loch_device *device, loch_attributes attributes);

/* Sets the default allocator of a device. NULL removes it, and releases the allocators that the library made for the
 * device. */
loch_status lochi_registry_set(loch_device *device, loch_allocator *allocator);

#endif
