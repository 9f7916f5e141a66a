/* SPDX-License-Identifier: MIT */
/* Factories: what a factory makes is made once, and shared by all threads that ask for it. */
#include "memory/registry/making.h"
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/fork.h"
#include "base/heap.h"
#include "base/thread.h"

/* --- forks --- */

/* Unfinished entries of threads that do not exist in the child of a fork. Written only there, where one thread runs. */
static lochi_registry_made *making_lost;

/* Takes out the unfinished entries of other threads. Returns the number of unfinished entries of the calling thread. */
static unsigned making_forget_makers(lochi_registry_entry *entry)
{
    unsigned own = 0;
    for (lochi_registry_made **link = &entry->made; *link;) {
        lochi_registry_made *made = *link;
        const bool is_own = made->maker == lochi_thread_number();
        own += !made->allocator && is_own;
        if (made->allocator || is_own) {
            link = &made->next;
            continue;
        }
        *link = made->next;
        made->next = making_lost;
        making_lost = made;
    }
    return own;
}

static void making_forked(void)
{
    pthread_cond_init(&lochi_registry.cond, NULL);
    lochi_registry.waiters = NULL; /* the waiters are other threads: a waiting thread does not fork */
    for (lochi_registry_entry *entry = lochi_registry.list; entry; entry = entry->next)
        entry->users = making_forget_makers(entry);
    lochi_registry.own.users = making_forget_makers(&lochi_registry.own);
}

static void making_settle(void)
{
    while (making_lost) {
        lochi_registry_made *made = making_lost;
        making_lost = made->next;
        loch_device_release(made->device);
        lochi_free(made);
    }
}

static lochi_fork_part making_part = {.child = making_forked, .settle = making_settle};

/* --- making once --- */

static bool making_is_same(loch_attributes a, loch_attributes b)
{
    return a.bits == b.bits && a.scope == b.scope;
}

static lochi_registry_made *making_find_made(const lochi_registry_entry *entry, const loch_device *device,
                                             loch_attributes attributes)
{
    lochi_lock_assert_held(&lochi_registry.lock);
    lochi_registry_made *made = entry->made;
    while (made && (made->device != device || !making_is_same(made->attributes, attributes)))
        made = made->next;
    return made;
}

/* Returns whether the maker is the calling thread, or waits, directly or through others, for the calling thread. */
static bool making_waits_for_us(const lochi_registry_made *made)
{
    lochi_lock_assert_held(&lochi_registry.lock);
    const uint64_t self = lochi_thread_number();
    uint64_t thread = made->maker;
    while (thread && thread != self) {
        const lochi_registry_waiter *waiter = lochi_registry.waiters;
        while (waiter && waiter->thread != thread)
            waiter = waiter->next;
        thread = waiter && waiter->made ? waiter->maker : 0;
    }
    return thread == self;
}

/* Waits until `made` is finished, or has failed and is removed. Drops the lock while it waits. */
static void making_wait(const lochi_registry_made *made)
{
    lochi_lock_assert_held(&lochi_registry.lock);
    LOCHI_NOT_CANCELLED;
    lochi_registry_waiter waiter = {lochi_registry.waiters, lochi_thread_number(), made->maker, made};
    lochi_registry.waiters = &waiter;
    while (waiter.made)
        lochi_lock_wait(&lochi_registry.lock, &lochi_registry.cond);
    lochi_registry_waiter **link = &lochi_registry.waiters;
    while (*link != &waiter)
        link = &(*link)->next;
    *link = waiter.next;
}

static void making_wake(const lochi_registry_made *made)
{
    lochi_lock_assert_held(&lochi_registry.lock);
    for (lochi_registry_waiter *waiter = lochi_registry.waiters; waiter; waiter = waiter->next)
        if (waiter->made == made) waiter->made = NULL;
    pthread_cond_broadcast(&lochi_registry.cond);
}

/* Makes an allocator with the factory of an entry. Drops the lock around the call of the factory. */
static loch_status making_make(lochi_registry_entry *entry, loch_device *device, loch_attributes attributes,
                               loch_allocator **out)
{
    lochi_lock_assert_held(&lochi_registry.lock);
    LOCHI_NOT_CANCELLED;
    lochi_fork_add(&making_part);
    lochi_registry_made *made = lochi_zalloc(sizeof *made);
    if (!made) return LOCH_FAIL(HOST_MEMORY, "no host memory for the record of what a factory makes");
    *made = (lochi_registry_made){entry->made, loch_device_retain(device), attributes, NULL, lochi_thread_number()};
    entry->made = made;
    loch_allocator *allocator = NULL;
    lochi_lock_drop(&lochi_registry.lock);
    lochi_thread_own_small.factories++;
    loch_status status = entry->factory(device, attributes, entry->user, &allocator);
    lochi_thread_own_small.factories--;
    if (status == LOCH_OK && !allocator)
        status = LOCH_FAIL(INVALID, "factory \"%s\" returned LOCH_OK without an allocator", entry->name);
    lochi_lock_take(&lochi_registry.lock);
    making_wake(made);
    if (status == LOCH_OK) {
        made->allocator = allocator;
        *out = loch_allocator_retain(allocator);
        return LOCH_OK;
    }
    lochi_registry_made **link = &entry->made;
    while (*link != made)
        link = &(*link)->next;
    *link = made->next;
    lochi_lock_drop(&lochi_registry.lock);
    lochi_registry_free_made(made);
    lochi_lock_take(&lochi_registry.lock);
    return status;
}

loch_status lochi_registry_get_made(lochi_registry_entry *entry, loch_device *device, loch_attributes attributes,
                                    loch_allocator **out)
{
    lochi_lock_assert_held(&lochi_registry.lock);
    loch_status status = LOCH_OK;
    entry->users++;
    for (;;) {
        const lochi_registry_made *made = making_find_made(entry, device, attributes);
        if (made && made->allocator) {
            *out = loch_allocator_retain(made->allocator);
        } else if (!made && !entry->is_removed) {
            status = making_make(entry, device, attributes, out);
        } else if (made && !making_waits_for_us(made)) {
            making_wait(made);
            continue;
        }
        break;
    }
    if (!--entry->users) pthread_cond_broadcast(&lochi_registry.cond);
    return status;
}
