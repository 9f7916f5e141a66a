/* SPDX-License-Identifier: MIT */
/* The registry: entries in the order in which they win, each an allocator or a factory with what it has made.
 *
 * One lock guards the lists. Factories and visitors are called outside it: a search keeps its place by priority and
 * number, not by pointer, and an entry counts the threads that are in its factory, so that whoever removes it can
 * wait for them.
 *
 * What a factory makes is made once: the first thread to ask enters a place without an allocator, the others wait
 * there. A factory may ask the registry in turn. It does not find what its own thread is making, or what waits for
 * that: so a factory can wrap what would be found without it, and two that ask for each other do not wait for ever.
 *
 * The library's own defaults and those that were set are kept in two entries that no search sees. */
#include "memory/registry.h"
#include "base/cancel.h"
#include "base/fail.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/thread.h"
#include "device/device.h"
#include "memory/allocator.h"
#include <limits.h>
#include <string.h>

/* What was made, or set, for a device. */
typedef struct registry_made {
    struct registry_made *next;
    loch_device *device; /* retained */
    loch_attributes attributes;
    loch_allocator *allocator; /* retained; NULL while it is being made */
    uint64_t maker;            /* the thread that makes it */
} registry_made;

typedef struct registry_entry {
    struct registry_entry *next;
    char name[LOCHI_ALLOCATOR_NAME_MAX];
    int priority;
    uint64_t number;            /* of the registration */
    loch_allocator *allocator;  /* retained; NULL for a factory */
    loch_attributes attributes; /* of the allocator */
    loch_allocator_factory *factory;
    void *user;
    registry_made *made;
    unsigned users;  /* threads that make something, or wait for it */
    bool is_removed; /* nothing new is made */
} registry_entry;

/* A thread that waits for what another makes; on its own stack. */
typedef struct registry_waiter {
    struct registry_waiter *next;
    uint64_t thread, maker;
    const registry_made *made; /* NULL once it is made, or has failed */
} registry_waiter;

static lochi_lock registry_lock = LOCHI_LOCK_INITIALIZER(LOCHI_RANK_REGISTRY);
static pthread_cond_t registry_cond = PTHREAD_COND_INITIALIZER; /* something was made, or a thread has left an entry */

/* All under registry_lock. */
static registry_entry *registry_list; /* highest priority first, then lowest number */
static uint64_t registry_number;
static registry_entry registry_own; /* its factory and attributes are those of lochi_registry_get_own */
static registry_entry registry_set; /* only `made` counts: attributes are those that the allocators have */
static registry_waiter *registry_waiters;

/* --- forks --- */

static registry_made *registry_lost; /* places of makers that the child of a fork does not have; written there, alone */

/* Takes out what other threads were making; says how many makings are the calling thread's. */
static unsigned registry_forget_makers(registry_entry *entry)
{
    unsigned own = 0;
    for (registry_made **link = &entry->made; *link;) {
        registry_made *made = *link;
        const bool is_own = made->maker == lochi_thread_number();
        own += !made->allocator && is_own;
        if (made->allocator || is_own) {
            link = &made->next;
            continue;
        }
        *link = made->next;
        made->next = registry_lost;
        registry_lost = made;
    }
    return own;
}

static void registry_forked(void)
{
    pthread_cond_init(&registry_cond, NULL);
    registry_waiters = NULL; /* they are others': who waits does not fork */
    for (registry_entry *entry = registry_list; entry; entry = entry->next)
        entry->users = registry_forget_makers(entry);
    registry_own.users = registry_forget_makers(&registry_own);
}

static void registry_settle(void)
{
    while (registry_lost) {
        registry_made *made = registry_lost;
        registry_lost = made->next;
        loch_device_release(made->device);
        lochi_free(made);
    }
}

static lochi_fork_part registry_part = {.child = registry_forked, .settle = registry_settle};

/* --- making once --- */

static bool registry_is_same(loch_attributes a, loch_attributes b)
{
    return a.bits == b.bits && a.scope == b.scope;
}

static void registry_free_made(registry_made *made)
{
    loch_allocator_release(made->allocator);
    loch_device_release(made->device);
    lochi_free(made);
}

static registry_made *registry_find_made(const registry_entry *entry, const loch_device *device,
                                         loch_attributes attributes)
{
    lochi_lock_assert_held(&registry_lock);
    registry_made *made = entry->made;
    while (made && (made->device != device || !registry_is_same(made->attributes, attributes)))
        made = made->next;
    return made;
}

/* Tells whether the maker, or the thread that it waits for, is the calling thread. */
static bool registry_waits_for_us(const registry_made *made)
{
    lochi_lock_assert_held(&registry_lock);
    const uint64_t self = lochi_thread_number();
    uint64_t thread = made->maker;
    while (thread && thread != self) {
        const registry_waiter *waiter = registry_waiters;
        while (waiter && waiter->thread != thread)
            waiter = waiter->next;
        thread = waiter && waiter->made ? waiter->maker : 0;
    }
    return thread == self;
}

/* Waits until `made` is made, or has failed and is gone. The lock is dropped meanwhile. */
static void registry_wait(const registry_made *made)
{
    lochi_lock_assert_held(&registry_lock);
    LOCHI_NOT_CANCELLED;
    registry_waiter waiter = {registry_waiters, lochi_thread_number(), made->maker, made};
    registry_waiters = &waiter;
    while (waiter.made)
        lochi_lock_wait(&registry_lock, &registry_cond);
    registry_waiter **link = &registry_waiters;
    while (*link != &waiter)
        link = &(*link)->next;
    *link = waiter.next;
}

static void registry_wake(const registry_made *made)
{
    lochi_lock_assert_held(&registry_lock);
    for (registry_waiter *waiter = registry_waiters; waiter; waiter = waiter->next)
        if (waiter->made == made) waiter->made = NULL;
    pthread_cond_broadcast(&registry_cond);
}

/* Makes an allocator by the factory of an entry. The lock is dropped around the factory. */
static loch_status registry_make(registry_entry *entry, loch_device *device, loch_attributes attributes,
                                 loch_allocator **out)
{
    lochi_lock_assert_held(&registry_lock);
    LOCHI_NOT_CANCELLED;
    lochi_fork_add(&registry_part);
    registry_made *made = lochi_zalloc(sizeof *made);
    if (!made) return LOCH_FAIL(HOST_MEMORY, "no host memory to note what a factory makes");
    *made = (registry_made){entry->made, loch_device_retain(device), attributes, NULL, lochi_thread_number()};
    entry->made = made;
    loch_allocator *allocator = NULL;
    lochi_lock_drop(&registry_lock);
    lochi_thread_own_small.factories++;
    loch_status status = entry->factory(device, attributes, entry->user, &allocator);
    lochi_thread_own_small.factories--;
    if (status == LOCH_OK && !allocator)
        status = LOCH_FAIL(INVALID, "factory \"%s\" said that it made an allocator, and gave none", entry->name);
    lochi_lock_take(&registry_lock);
    registry_wake(made);
    if (status == LOCH_OK) {
        made->allocator = allocator;
        *out = loch_allocator_retain(allocator);
        return LOCH_OK;
    }
    registry_made **link = &entry->made;
    while (*link != made)
        link = &(*link)->next;
    *link = made->next;
    lochi_lock_drop(&registry_lock);
    registry_free_made(made);
    lochi_lock_take(&registry_lock);
    return status;
}

/* Gives what the entry's factory has made or makes now; LOCH_OK and NULL when the entry is to be passed over. The lock may be
 * dropped meanwhile. */
static loch_status registry_get_made(registry_entry *entry, loch_device *device, loch_attributes attributes,
                                     loch_allocator **out)
{
    lochi_lock_assert_held(&registry_lock);
    loch_status status = LOCH_OK;
    entry->users++;
    for (;;) {
        const registry_made *made = registry_find_made(entry, device, attributes);
        if (made && made->allocator) {
            *out = loch_allocator_retain(made->allocator);
        } else if (!made && !entry->is_removed) {
            status = registry_make(entry, device, attributes, out);
        } else if (made && !registry_waits_for_us(made)) {
            registry_wait(made);
            continue;
        }
        break;
    }
    if (!--entry->users) pthread_cond_broadcast(&registry_cond);
    return status;
}

/* --- adding and removing --- */

static loch_status registry_check(const char *name, int priority)
{
    if (!name || !*name || strlen(name) >= LOCHI_ALLOCATOR_NAME_MAX)
        return LOCH_FAIL(INVALID, "the registry takes names of 1 to %d characters", LOCHI_ALLOCATOR_NAME_MAX - 1);
    if (priority < 0) return LOCH_FAIL(INVALID, "the priority of \"%s\" is %d: it cannot be negative", name, priority);
    return LOCH_OK;
}

static registry_entry **registry_find_link(const char *name, int priority)
{
    lochi_lock_assert_held(&registry_lock);
    registry_entry **link = &registry_list;
    while (*link && ((*link)->priority != priority || strcmp((*link)->name, name) != 0))
        link = &(*link)->next;
    return link;
}

/* Takes a copy of `given` into the list. */
static loch_status registry_insert(const registry_entry *given, const char *name)
{
    registry_entry *entry = lochi_alloc(sizeof *entry);
    if (!entry) return LOCH_FAIL(HOST_MEMORY, "no host memory to register \"%s\"", name);
    *entry = *given;
    memcpy(entry->name, name, strlen(name) + 1);
    lochi_lock_take(&registry_lock);
    const bool is_new = !*registry_find_link(name, entry->priority);
    if (is_new) {
        registry_entry **link = &registry_list;
        while (*link && (*link)->priority >= entry->priority)
            link = &(*link)->next;
        entry->number = ++registry_number;
        entry->next = *link;
        *link = entry;
    }
    lochi_lock_drop(&registry_lock);
    if (is_new) return LOCH_OK;
    lochi_free(entry);
    return LOCH_FAIL(EXISTS, "\"%s\" is registered with priority %d already", name, given->priority);
}

loch_status loch_registry_add(loch_allocator *allocator, const char *name, int priority)
{
    if (!allocator) return LOCH_FAIL(INVALID, "there is no allocator to register");
    if (!name) name = allocator->name;
    LOCH_TRY_RETURN(registry_check(name, priority));
    const registry_entry entry = {.priority = priority,
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
    const registry_entry entry = {.priority = priority, .factory = factory, .user = user};
    return registry_insert(&entry, name);
}

/* Gives up all that an entry keeps; without the lock. */
static void registry_empty(registry_entry *entry)
{
    while (entry->made) {
        registry_made *next = entry->made->next;
        registry_free_made(entry->made);
        entry->made = next;
    }
    loch_allocator_release(entry->allocator);
    entry->allocator = NULL;
}

loch_status loch_registry_remove(const char *name, int priority)
{
    LOCHI_NOT_CANCELLED;
    LOCH_TRY_RETURN(registry_check(name, priority));
    if (lochi_thread_own_small.factories) return LOCH_FAIL(BUSY, "a factory cannot remove \"%s\" while it runs", name);
    lochi_lock_take(&registry_lock);
    registry_entry **link = registry_find_link(name, priority), *entry = *link;
    if (entry) {
        *link = entry->next;
        entry->is_removed = true;
        while (entry->users)
            lochi_lock_wait(&registry_lock, &registry_cond);
    }
    lochi_lock_drop(&registry_lock);
    if (!entry) return LOCH_FAIL(NOT_FOUND, "\"%s\" is not registered with priority %d", name, priority);
    registry_empty(entry);
    lochi_free(entry);
    return LOCH_OK;
}

/* --- searching --- */

/* A place in the order of entries that stays one when they come and go. */
typedef struct registry_place {
    int priority;
    uint64_t number;
} registry_place;

static const registry_place registry_start = {INT_MAX, 0};

/* Returns the entry behind a place, which moves on to it; NULL at the end. */
static registry_entry *registry_next(registry_place *place)
{
    lochi_lock_assert_held(&registry_lock);
    registry_entry *entry = registry_list;
    while (entry && (entry->priority > place->priority ||
                     (entry->priority == place->priority && entry->number <= place->number)))
        entry = entry->next;
    if (entry) *place = (registry_place){entry->priority, entry->number};
    return entry;
}

/* What is looked for: a name (then any attributes will do), or attributes. */
typedef struct registry_query {
    const char *name;
    loch_device *device;
    loch_attributes attributes;
} registry_query;

/* A device's own memory is not on the host, unless the device is the host: pinned memory has to be asked for. */
static bool registry_serves(const loch_device *device, loch_attributes has, loch_attributes wanted)
{
    if (!loch_attributes_at_most_as_strict(wanted, has)) return false;
    return loch_attributes_has(wanted, LOCH_ATTRIBUTE_ON_HOST) || !loch_attributes_has(has, LOCH_ATTRIBUTE_ON_HOST) ||
           loch_device_can(device, LOCH_CAN_HOST_ACCESS);
}

/* Asks one entry; LOCH_OK and NULL when it has nothing to do with the query. The lock may be dropped meanwhile. */
static loch_status registry_ask(registry_entry *entry, const registry_query *query, loch_allocator **out)
{
    lochi_lock_assert_held(&registry_lock);
    if (query->name && strcmp(entry->name, query->name) != 0) return LOCH_OK;
    if (!entry->allocator)
        return query->device ? registry_get_made(entry, query->device, query->attributes, out) : LOCH_OK;
    if (query->device && entry->allocator->device != query->device) return LOCH_OK;
    if (!query->name && !registry_serves(entry->allocator->device, entry->attributes, query->attributes))
        return LOCH_E_UNSUPPORTED; /* the sentence is the search's to write */
    *out = loch_allocator_retain(entry->allocator);
    return LOCH_OK;
}

static loch_status registry_search(const registry_query *query, loch_allocator **out)
{
    registry_place place = registry_start;
    registry_entry *entry;
    bool is_refused = false;
    loch_status status = LOCH_OK;
    *out = NULL;
    lochi_lock_take(&registry_lock);
    while (!*out && status == LOCH_OK && (entry = registry_next(&place))) {
        status = registry_ask(entry, query, out);
        if (status != LOCH_E_UNSUPPORTED) continue;
        is_refused = true;
        status = LOCH_OK;
    }
    lochi_lock_drop(&registry_lock);
    if (status != LOCH_OK || *out) return status;
    const char *name = query->name ? query->name : "", *device = query->device ? query->device->name : "any device";
    if (is_refused)
        return LOCH_FAIL(
            UNSUPPORTED, "of what is registered%s%.64s nothing serves %.80s with attributes 0x%x, scope %d",
            *name ? " as " : "", name, device, (unsigned)query->attributes.bits, (int)query->attributes.scope);
    return LOCH_FAIL(NOT_FOUND, "nothing is registered%s%.64s for %.80s", *name ? " as " : "", name, device);
}

loch_status loch_registry_acquire(const char *name, loch_device *device, loch_allocator **out)
{
    if (out) *out = NULL;
    if (!name || !*name || !out) return LOCH_FAIL(INVALID, "finding an allocator needs a name and a place");
    const registry_query query = {.name = name, .device = device};
    return registry_search(&query, out);
}

loch_status loch_registry_acquire_best(loch_device *device, loch_attributes attributes, loch_allocator **out)
{
    if (out) *out = NULL;
    if (!out) return LOCH_FAIL(INVALID, "finding the best allocator needs a place");
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
        lochi_lock_take(&registry_lock);
        const registry_entry *entry = registry_next(&place);
        if (entry) {
            memcpy(name, entry->name, sizeof name);
            shown.priority = entry->priority;
            shown.allocator = loch_allocator_retain(entry->allocator);
        }
        lochi_lock_drop(&registry_lock);
        if (!entry) break;
        status = visitor(&shown, user);
        loch_allocator_release(shown.allocator);
    }
    return status;
}

/* --- the devices' defaults --- */

loch_status lochi_registry_get_own(loch_device *device, loch_attributes attributes, loch_allocator_factory *make,
                                   loch_allocator **out)
{
    lochi_lock_take(&registry_lock);
    if (!registry_own.factory) registry_own.factory = make; /* once: it is read without the lock */
    const loch_status status = registry_get_made(&registry_own, device, attributes, out);
    lochi_lock_drop(&registry_lock);
    return status;
}

loch_allocator *lochi_registry_get_set(const loch_device *device, loch_attributes attributes)
{
    loch_allocator *found = NULL;
    lochi_lock_take(&registry_lock);
    for (const registry_made *made = registry_set.made; made && !found; made = made->next)
        if (made->device == device && loch_attributes_at_most_as_strict(attributes, made->attributes))
            found = loch_allocator_retain(made->allocator);
    lochi_lock_drop(&registry_lock);
    return found;
}

/* Moves what an entry has for a device to another list. */
static void registry_detach(registry_entry *entry, const loch_device *device, registry_made **to)
{
    lochi_lock_assert_held(&registry_lock);
    for (registry_made **link = &entry->made; *link;) {
        registry_made *made = *link;
        if (made->device != device || !made->allocator) { /* what is being made stays: its maker needs the place */
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
    registry_entry gone = {0};
    registry_made *made = NULL;
    if (allocator) {
        made = lochi_zalloc(sizeof *made);
        if (!made) return LOCH_FAIL(HOST_MEMORY, "no host memory to note the allocator of %s", device->name);
        made->device = loch_device_retain(device);
        made->attributes = loch_allocator_get_attributes(allocator);
        made->allocator = loch_allocator_retain(allocator);
    }
    lochi_lock_take(&registry_lock);
    registry_detach(&registry_set, device, &gone.made);
    if (made) {
        made->next = registry_set.made;
        registry_set.made = made;
    } else {
        registry_detach(&registry_own, device, &gone.made);
    }
    lochi_lock_drop(&registry_lock);
    registry_empty(&gone);
    return LOCH_OK;
}

/* --- the end --- */

/* Allocator number `index` of those that the entries of a list keep; NULL past the end. */
static loch_allocator *registry_kept_at(const registry_entry *list, size_t index)
{
    for (; list; list = list->next) {
        if (list->allocator && !index--) return list->allocator;
        for (const registry_made *made = list->made; made; made = made->next)
            if (!index--) return made->allocator;
    }
    return NULL;
}

/* Whether the blocks of allocator number `index` are those of another in the list: the same one earlier, or one that it
 * wraps. So every block is told of once. */
static bool registry_is_told_elsewhere(const registry_entry *list, size_t index)
{
    const loch_allocator *own = registry_kept_at(list, index), *other;
    for (size_t i = 0; (other = registry_kept_at(list, i)); i++) {
        if (other == own && i < index) return true;
        for (const loch_allocator *inner = own->wrapped; inner; inner = inner->wrapped)
            if (inner == other) return true;
    }
    return false;
}

typedef struct registry_leaks {
    loch_allocator *allocator;
    loch_leak_visitor *visitor;
    void *user;
    size_t count;
} registry_leaks;

static loch_status registry_note_leak(const loch_block *block, void *user)
{
    registry_leaks *leaks = user;
    leaks->count++;
    if (leaks->visitor && leaks->visitor(leaks->allocator, block, leaks->user) != LOCH_OK) leaks->visitor = NULL;
    return LOCH_OK;
}

/* Empties all lists into one, when nobody makes anything any more. The lock is dropped while it waits for that. */
static registry_entry *registry_close(registry_entry *own, registry_entry *set)
{
    lochi_lock_assert_held(&registry_lock);
    registry_entry *list = registry_list;
    registry_list = NULL;
    for (registry_entry *entry = list; entry; entry = entry->next)
        entry->is_removed = true;
    for (const registry_entry *entry = list; entry; entry = entry->next)
        while (entry->users)
            lochi_lock_wait(&registry_lock, &registry_cond);
    while (registry_own.users)
        lochi_lock_wait(&registry_lock, &registry_cond);
    *own = (registry_entry){.next = list, .made = registry_own.made};
    *set = (registry_entry){.next = own, .made = registry_set.made};
    registry_own.made = registry_set.made = NULL;
    return set;
}

loch_status loch_registry_clear(loch_leak_visitor *visitor, void *user, size_t *leaks)
{
    LOCHI_NOT_CANCELLED;
    if (leaks) *leaks = 0;
    if (lochi_thread_own_small.factories)
        return LOCH_FAIL(BUSY, "a factory cannot shut the registry down while it runs");
    registry_entry own, set; /* heads of the list; the entries behind them are the registry's */
    lochi_lock_take(&registry_lock);
    const registry_entry *list = registry_close(&own, &set);
    lochi_lock_drop(&registry_lock);

    registry_leaks told = {.visitor = visitor, .user = user};
    loch_status status = LOCH_OK;
    for (size_t i = 0; (told.allocator = registry_kept_at(list, i)); i++) {
        if (registry_is_told_elsewhere(list, i)) continue;
        const loch_status walked = loch_allocator_walk(told.allocator, registry_note_leak, &told);
        if (status == LOCH_OK) status = walked;
    }
    if (leaks) *leaks = told.count;
    registry_empty(&set);
    registry_empty(&own);
    for (registry_entry *entry = own.next, *next; entry; entry = next) {
        next = entry->next;
        registry_empty(entry);
        lochi_free(entry);
    }
    return status;
}
