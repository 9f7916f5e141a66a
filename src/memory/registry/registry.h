/* SPDX-License-Identifier: MIT */
/* Searching the registry for the library itself. */
#ifndef LOCHI_REGISTRY_REGISTRY_H
#define LOCHI_REGISTRY_REGISTRY_H

#include <loch/registry.h>

/* As loch_registry_acquire_best. LOCH_OK with NULL, and no sentence, if nothing that is registered serves. */
loch_status lochi_registry_find_best(loch_device *device, loch_attributes attributes, loch_allocator **out);

#endif
