/* SPDX-License-Identifier: MIT */
/* Making once what a factory makes. */
#ifndef LOCHI_REGISTRY_MAKING_H
#define LOCHI_REGISTRY_MAKING_H

#include "memory/registry/state.h"

/* Gives what the entry's factory has made or makes now; LOCH_OK and NULL when the entry is to be passed over. The lock is
 * held; it may be dropped meanwhile. */
loch_status lochi_registry_get_made(lochi_registry_entry *entry, loch_device *device, loch_attributes attributes,
                                    loch_allocator **out);

#endif
