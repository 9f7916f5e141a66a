/* SPDX-License-Identifier: MIT */
/* Factories: what a factory makes is made once, and shared by all threads that ask for it. */
#ifndef LOCHI_REGISTRY_MAKING_H
#define LOCHI_REGISTRY_MAKING_H

#include "memory/registry/state.h"

/* Returns the allocator that the entry's factory has made, or makes it now. LOCH_OK with NULL means: skip this
 * entry. The lock is held; it may be dropped in between. */
loch_status lochi_registry_get_made(lochi_registry_entry *entry, loch_device *device, loch_attributes attributes,
                                    loch_allocator **out);

#endif
