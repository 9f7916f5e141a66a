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
#ifndef LOCHI_REGISTRY_STATE_H
#define LOCHI_REGISTRY_STATE_H

#include "memory/allocator.h"
#include <loch/registry.h>
#include <pthread.h>

/* What was made, or set, for a device. */
typedef struct lochi_registry_made {
    struct lochi_registry_made *next;
    loch_device *device; /* retained */
    loch_attributes attributes;
    loch_allocator *allocator; /* retained; NULL while it is being made */
    uint64_t maker;            /* the thread that makes it */
} lochi_registry_made;

typedef struct lochi_registry_entry {
    struct lochi_registry_entry *next;
    char name[LOCHI_ALLOCATOR_NAME_MAX];
    int priority;
    uint64_t number;            /* of the registration */
    loch_allocator *allocator;  /* retained; NULL for a factory */
    loch_attributes attributes; /* of the allocator */
    loch_allocator_factory *factory;
    void *user;
    lochi_registry_made *made;
    unsigned users;  /* threads that make something, or wait for it */
    bool is_removed; /* nothing new is made */
} lochi_registry_entry;

/* A thread that waits for what another makes; on its own stack. */
typedef struct lochi_registry_waiter {
    struct lochi_registry_waiter *next;
    uint64_t thread, maker;
    const lochi_registry_made *made; /* NULL once it is made, or has failed */
} lochi_registry_waiter;

/* The registry of the process. Everything is under the lock. */
typedef struct lochi_registry_state {
    lochi_lock lock;            /* LOCHI_RANK_REGISTRY */
    pthread_cond_t cond;        /* something was made, or a thread has left an entry */
    lochi_registry_entry *list; /* highest priority first, then lowest number */
    uint64_t number;            /* of the last registration */
    lochi_registry_entry own;   /* the library's own allocators, made by the factory of lochi_registry_get_own */
    lochi_registry_entry set;   /* only `made` counts: attributes are those that the allocators have */
    lochi_registry_waiter *waiters;
} lochi_registry_state;

extern lochi_registry_state lochi_registry;

/* Gives up what was made, or set, for a device. Without the lock. */
void lochi_registry_free_made(lochi_registry_made *made);

/* Gives up all that an entry keeps. Without the lock. */
void lochi_registry_empty(lochi_registry_entry *entry);

#endif
