/* SPDX-License-Identifier: MIT */
/* What the registry keeps for the devices' default allocators (defaults.c). */
#ifndef LOCHI_REGISTRY_H
#define LOCHI_REGISTRY_H

#include <loch/registry.h>

/* The library's own allocator for a device and attributes that default_make knows; made once under any race. */
loch_status lochi_registry_get_own(loch_device *device, loch_attributes attributes, loch_allocator **out);

/* The allocator that was set as the device's default, if it serves the attributes; else NULL. Retained. */
loch_allocator *lochi_registry_get_set(const loch_device *device, loch_attributes attributes);

/* Sets it, or with NULL gives it up, and with it what the library made for the device. */
loch_status lochi_registry_set(loch_device *device, loch_allocator *allocator);

/* Makes the library's own (defaults.c). */
loch_allocator_factory lochi_default_make;

#endif
