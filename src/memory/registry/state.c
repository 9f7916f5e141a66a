/* SPDX-License-Identifier: MIT */
/* The state of the registry, and releasing what an entry holds. */
#include "memory/registry/state.h"
#include "base/heap.h"

lochi_registry_state lochi_registry = {.lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_REGISTRY),
                                       .cond = PTHREAD_COND_INITIALIZER};

void lochi_registry_free_made(lochi_registry_made *made)
{
    loch_allocator_release(made->allocator);
    loch_device_release(made->device);
    lochi_free(made);
}

void lochi_registry_empty(lochi_registry_entry *entry)
{
    while (entry->made) {
        lochi_registry_made *next = entry->made->next;
        lochi_registry_free_made(entry->made);
        entry->made = next;
    }
    loch_allocator_release(entry->allocator);
    entry->allocator = NULL;
}
