/* SPDX-License-Identifier: MIT */
/* Registering allocators and factories, and searching them. state.h says how the registry works. */
#include "memory/registry/registry.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/thread.h"
#include "device/device.h"
#include "memory/registry/making.h"
#include <limits.h>
#include <string.h>

/* --- adding and removing --- */

static loch_status registry_check(const char *name, int priority)
{
    if (!name || !*name || strlen(name) >= LOCHI_ALLOCATOR_NAME_MAX)
        return LOCH_FAIL(INVALID, "a name in the registry needs 1 to %d characters", LOCHI_ALLOCATOR_NAME_MAX - 1);
    if (priority < 0) return LOCH_FAIL(INVALID, "the priority of \"%s\" is %d: it cannot be negative", name, priority);
    return LOCH_OK;
}

static lochi_registry_entry **registry_find_link(const char *name, int priority)
{
    lochi_lock_assert_held(&lochi_registry.lock);
    lochi_registry_entry **link = &lochi_registry.list;
    while (*link && ((*link)->priority != priority || strcmp((*link)->name, name) != 0))
        link = &(*link)->next;
    return link;
}

/* Copies `given` into the list. */
static loch_status registry_insert(const lochi_registry_entry *given, const char *name)
{
    lochi_registry_entry *entry = lochi_alloc(sizeof *entry);
    if (!entry) return LOCH_FAIL(HOST_MEMORY, "no host memory to register \"%s\"", name);
    *entry = *given;
    memcpy(entry->name, name, strlen(name) + 1);
    lochi_lock_take(&lochi_registry.lock);
    const bool is_new = !*registry_find_link(name, entry->priority);
    if (is_new) {
        lochi_registry_entry **link = &lochi_registry.list;
        while (*link && (*link)->priority >= entry->priority)
            link = &(*link)->next;
        entry->number = ++lochi_registry.number;
        entry->next = *link;
        *link = entry;
    }
    lochi_lock_drop(&lochi_registry.lock);
    if (is_new) return LOCH_OK;
    lochi_free(entry);
    return LOCH_FAIL(EXISTS, "\"%s\" is registered with priority %d already", name, given->priority);
}

loch_status loch_registry_add(loch_allocator *allocator, const char *name, int priority)
{
    if (!allocator) return LOCH_FAIL(INVALID, "there is no allocator to register");
    if (!name) name = allocator->name;
    LOCH_TRY_RETURN(registry_check(name, priority));
    const lochi_registry_entry entry = {.priority = priority,
                                        .allocator = loch_allocator_retain(allocator),
                                        .attributes = loch_allocator_get_attributes(allocator)};
    const loch_status status = registry_insert(&entry, name);
    if (status != LOCH_OK) loch_allocator_release(allocator);
    return status;
}

loch_status loch_registry_add_factory(const char *name, int priority, loch_allocator_factory *factory, void *user)
{
    LOCH_TRY_RETURN(registry_check(name, priority));
    if (!factory) return LOCH_FAIL(INVALID, "\"%s\" has no factory to register", name);
    const lochi_registry_entry entry = {.priority = priority, .factory = factory, .user = user};
    return registry_insert(&entry, name);
}

loch_status loch_registry_remove(const char *name, int priority)
{
    LOCHI_NOT_CANCELLED;
    LOCH_TRY_RETURN(registry_check(name, priority));
    if (lochi_thread_own_small.factories) return LOCH_FAIL(BUSY, "a factory cannot remove \"%s\" while it runs", name);
    lochi_lock_take(&lochi_registry.lock);
    lochi_registry_entry **link = registry_find_link(name, priority), *entry = *link;
    if (entry) {
        *link = entry->next;
        entry->is_removed = true;
        while (entry->users)
            lochi_lock_wait(&lochi_registry.lock, &lochi_registry.cond);
    }
    lochi_lock_drop(&lochi_registry.lock);
    if (!entry) return LOCH_FAIL(NOT_FOUND, "\"%s\" is not registered with priority %d", name, priority);
    lochi_registry_empty(entry);
    lochi_free(entry);
    return LOCH_OK;
}

/* --- searching --- */

/* A position in the order of entries. It stays valid when entries are added or removed. */
typedef struct registry_place {
    int priority;
    uint64_t number;
} registry_place;

static const registry_place registry_start = {INT_MAX, 0};

/* Returns the first entry after a place, and moves the place to it; NULL at the end. */
static lochi_registry_entry *registry_next(registry_place *place)
{
    lochi_lock_assert_held(&lochi_registry.lock);
    lochi_registry_entry *entry = lochi_registry.list;
    while (entry && (entry->priority > place->priority ||
                     (entry->priority == place->priority && entry->number <= place->number)))
        entry = entry->next;
    if (entry) *place = (registry_place){entry->priority, entry->number};
    return entry;
}

/* What a search looks for: a name (any attributes match), or attributes. */
typedef struct registry_query {
    const char *name;
    loch_device *device;
    loch_attributes attributes;
} registry_query;

/* Returns whether an allocator's attributes serve the wanted ones. A device's own memory is not on the host unless
 * the device is the host, so pinned memory is found only if on-host memory is wanted. */
static bool registry_serves(const loch_device *device, loch_attributes has, loch_attributes wanted)
{
    if (!loch_attributes_at_most_as_strict(wanted, has)) return false;
    return loch_attributes_has(wanted, LOCH_ATTRIBUTE_ON_HOST) || !loch_attributes_has(has, LOCH_ATTRIBUTE_ON_HOST) ||
           loch_device_can(device, LOCH_CAN_HOST_ACCESS);
}

/* Asks one entry. LOCH_OK with NULL means that the entry does not match the query. The lock may be dropped in
 * between. */
static loch_status registry_ask(lochi_registry_entry *entry, const registry_query *query, loch_allocator **out)
{
    lochi_lock_assert_held(&lochi_registry.lock);
    if (query->name && strcmp(entry->name, query->name) != 0) return LOCH_OK;
    if (!entry->allocator)
        return query->device ? lochi_registry_get_made(entry, query->device, query->attributes, out) : LOCH_OK;
    if (query->device && entry->allocator->device != query->device) return LOCH_OK;
    if (!query->name && !registry_serves(entry->allocator->device, entry->attributes, query->attributes))
        return LOCH_E_UNSUPPORTED; /* the search writes the sentence */
    *out = loch_allocator_retain(entry->allocator);
    return LOCH_OK;
}

/* LOCH_OK with NULL, and no sentence: nothing matches. `is_refused` then says whether an entry was asked. */
static loch_status registry_look(const registry_query *query, bool *is_refused, loch_allocator **out)
{
    registry_place place = registry_start;
    lochi_registry_entry *entry;
    loch_status status = LOCH_OK;
    *is_refused = false;
    *out = NULL;
    lochi_lock_take(&lochi_registry.lock);
    while (!*out && status == LOCH_OK && (entry = registry_next(&place))) {
        status = registry_ask(entry, query, out);
        if (status != LOCH_E_UNSUPPORTED) continue;
        *is_refused = true;
        status = LOCH_OK;
    }
    lochi_lock_drop(&lochi_registry.lock);
    return status;
}

static loch_status registry_search(const registry_query *query, loch_allocator **out)
{
    bool is_refused;
    const loch_status status = registry_look(query, &is_refused, out);
    if (status != LOCH_OK || *out) return status;
    const char *name = query->name ? query->name : "", *device = query->device ? query->device->name : "any device";
    if (is_refused)
        return LOCH_FAIL(
            UNSUPPORTED, "nothing that is registered%s%.64s serves %.80s with attributes 0x%x and scope %d",
            *name ? " as " : "", name, device, (unsigned)query->attributes.bits, (int)query->attributes.scope);
    return LOCH_FAIL(NOT_FOUND, "nothing is registered%s%.64s for %.80s", *name ? " as " : "", name, device);
}

loch_status lochi_registry_find_best(loch_device *device, loch_attributes attributes, loch_allocator **out)
{
    const registry_query query = {.device = device, .attributes = attributes};
    bool is_refused;
    return registry_look(&query, &is_refused, out);
}

loch_status loch_registry_acquire(const char *name, loch_device *device, loch_allocator **out)
{
    if (out) *out = NULL;
    if (!name || !*name || !out) return LOCH_FAIL(INVALID, "finding an allocator needs a name and an out pointer");
    const registry_query query = {.name = name, .device = device};
    return registry_search(&query, out);
}

loch_status loch_registry_acquire_best(loch_device *device, loch_attributes attributes, loch_allocator **out)
{
    if (out) *out = NULL;
    if (!out) return LOCH_FAIL(INVALID, "finding the best allocator needs an out pointer");
    const registry_query query = {.device = device, .attributes = attributes};
    return registry_search(&query, out);
}

loch_status loch_registry_walk(loch_registry_visitor *visitor, void *user)
{
    LOCHI_NOT_CANCELLED;
    if (!visitor) return LOCH_FAIL(INVALID, "walking the registry needs a visitor");
    registry_place place = registry_start;
    loch_status status = LOCH_OK;
    while (status == LOCH_OK) {
        char name[LOCHI_ALLOCATOR_NAME_MAX];
        loch_registry_entry shown = {.name = name};
        lochi_lock_take(&lochi_registry.lock);
        const lochi_registry_entry *entry = registry_next(&place);
        if (entry) {
            memcpy(name, entry->name, sizeof name);
            shown.priority = entry->priority;
            shown.allocator = loch_allocator_retain(entry->allocator);
        }
        lochi_lock_drop(&lochi_registry.lock);
        if (!entry) break;
        status = visitor(&shown, user);
        loch_allocator_release(shown.allocator);
    }
    return status;
}
