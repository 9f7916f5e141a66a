/* SPDX-License-Identifier: MIT */
/* The end of the registry: reports live blocks as leaks, and releases everything. */
#include "kit/cancel.h"
#include "base/fail.h"
#include "base/heap.h"
#include "base/thread.h"
#include "memory/registry/state.h"

/* Returns allocator number `index` of all allocators in the entries of a list; NULL after the last one. */
static loch_allocator *shutdown_kept_at(const lochi_registry_entry *list, size_t index)
{
    for (; list; list = list->next) {
        if (list->allocator && !index--) return list->allocator;
        for (const lochi_registry_made *made = list->made; made; made = made->next)
            if (!index--) return made->allocator;
    }
    return NULL;
}

/* Returns whether the blocks of allocator number `index` are reported for another allocator of the list: for the
 * same allocator earlier in the list, or for one that it wraps. So every block is reported once. */
static bool shutdown_is_told_elsewhere(const lochi_registry_entry *list, size_t index)
{
    const loch_allocator *own = shutdown_kept_at(list, index), *other;
    for (size_t i = 0; (other = shutdown_kept_at(list, i)); i++) {
        if (other == own && i < index) return true;
        for (const loch_allocator *inner = own->wrapped; inner; inner = inner->wrapped)
            if (inner == other) return true;
    }
    return false;
}

typedef struct shutdown_leaks {
    loch_allocator *allocator;
    loch_leak_visitor *visitor;
    void *user;
    size_t count;
} shutdown_leaks;

static loch_status shutdown_note_leak(const loch_block *block, void *user)
{
    shutdown_leaks *leaks = user;
    leaks->count++;
    if (leaks->visitor && leaks->visitor(leaks->allocator, block, leaks->user) != LOCH_OK) leaks->visitor = NULL;
    return LOCH_OK;
}

/* Moves all lists into one, when no thread makes an allocator any more. Drops the lock while it waits for that. */
static lochi_registry_entry *shutdown_close(lochi_registry_entry *own, lochi_registry_entry *set)
{
    lochi_lock_assert_held(&lochi_registry.lock);
    lochi_registry_entry *list = lochi_registry.list;
    lochi_registry.list = NULL;
    for (lochi_registry_entry *entry = list; entry; entry = entry->next)
        entry->is_removed = true;
    for (const lochi_registry_entry *entry = list; entry; entry = entry->next)
        while (entry->users)
            lochi_lock_wait(&lochi_registry.lock, &lochi_registry.cond);
    while (lochi_registry.own.users)
        lochi_lock_wait(&lochi_registry.lock, &lochi_registry.cond);
    *own = (lochi_registry_entry){.next = list, .made = lochi_registry.own.made};
    *set = (lochi_registry_entry){.next = own, .made = lochi_registry.set.made};
    lochi_registry.own.made = lochi_registry.set.made = NULL;
    return set;
}

loch_status loch_registry_clear(loch_leak_visitor *visitor, void *user, size_t *leaks)
{
    LOCHI_NOT_CANCELLED;
    if (leaks) *leaks = 0;
    if (lochi_thread_own_small.factories) return LOCH_FAIL(BUSY, "a factory cannot clear the registry while it runs");
    lochi_registry_entry own, set; /* heads of the list; the entries after them belong to the registry */
    lochi_lock_take(&lochi_registry.lock);
    const lochi_registry_entry *list = shutdown_close(&own, &set);
    lochi_lock_drop(&lochi_registry.lock);

    shutdown_leaks told = {.visitor = visitor, .user = user};
    loch_status status = LOCH_OK;
    for (size_t i = 0; (told.allocator = shutdown_kept_at(list, i)); i++) {
        if (shutdown_is_told_elsewhere(list, i)) continue;
        const loch_status walked = loch_allocator_walk(told.allocator, shutdown_note_leak, &told);
        if (status == LOCH_OK) status = walked;
    }
    if (leaks) *leaks = told.count;
    lochi_registry_empty(&set);
    lochi_registry_empty(&own);
    for (lochi_registry_entry *entry = own.next, *next; entry; entry = next) {
        next = entry->next;
        lochi_registry_empty(entry);
        lochi_free(entry);
    }
    return status;
}
