/* SPDX-License-Identifier: MIT */
#include "memory/live/sources.h"
#include "base/heap.h"
#include "base/lock.h"
#include "device/device.h"
#include "memory/allocator_state.h"
#include <stdio.h>
#include <string.h>

#define SOURCES_MAX 1024 /* later names are number 0 */
#define SOURCES_NAME (LOCHI_ALLOCATOR_NAME_MAX + LOCH_DEVICE_NAME_MAX + 32)

typedef char sources_name[SOURCES_NAME];

static lochi_lock sources_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_LEAF);
static sources_name *sources_names; /* mapped on first use; entries do not change. Written under sources_lock */
static uint32_t sources_count = 1;

/* Returns the number of a name, a new one if there is none yet. */
static uint32_t sources_number(const char *name)
{
    lochi_lock_assert_held(&sources_lock);
    if (!sources_names) sources_names = lochi_map(SOURCES_MAX * sizeof *sources_names);
    if (!sources_names) return 0;
    for (uint32_t i = 1; i < sources_count; i++)
        if (!strcmp(sources_names[i], name)) return i;
    if (sources_count == SOURCES_MAX) return 0;
    snprintf(sources_names[sources_count], SOURCES_NAME, "%s", name);
    return sources_count++;
}

uint32_t lochi_live_source_of(loch_allocator *allocator)
{
    const uint32_t known = atomic_load_explicit(&allocator->live_source, memory_order_relaxed);
    if (known) return known - 1;
    sources_name name;
    snprintf(name, sizeof name, "allocator \"%s\" on %s", allocator->name, allocator->device->name);
    lochi_lock_take(&sources_lock);
    const uint32_t number = sources_number(name);
    lochi_lock_drop(&sources_lock);
    atomic_store_explicit(&allocator->live_source, number + 1, memory_order_relaxed);
    return number;
}

const char *lochi_live_source_name(uint32_t source)
{
    return source ? sources_names[source] : "another allocator";
}
