/* SPDX-License-Identifier: MIT */
/* The registry: a list of entries, best first. An entry is an allocator, or a factory with the allocators that it
 * made.
 *
 * One lock guards the lists. Factories and visitors are called without it. A search keeps its place by priority and
 * number, not by pointer. An entry counts the threads in its factory, so that the thread that removes the entry can
 * wait for them.
 *
 * What a factory makes is made once: the first thread that asks adds an unfinished entry, and other threads wait for
 * it. A factory may search the registry. The search skips what its own thread is making, and what waits for that. So
 * a factory can wrap the allocator that would be found without it, and two factories that ask for each other do not
 * deadlock.
 *
 * The library's own default allocators, and those that were set, are in two entries that no search sees. */
#ifndef LOCHI_REGISTRY_STATE_H
#define LOCHI_REGISTRY_STATE_H

#include "memory/allocator.h"
#include <loch/registry.h>
#include <pthread.h>

/* An allocator that was made, or set, for a device. */
typedef struct lochi_registry_made {
    struct lochi_registry_made *next;
    loch_device *device; /* retained */
    loch_attributes attributes;
    loch_allocator *allocator; /* retained; NULL while it is being made */
    uint64_t maker;            /* number of the thread that makes it */
} lochi_registry_made;

typedef struct lochi_registry_entry {
    struct lochi_registry_entry *next;
    char name[LOCHI_ALLOCATOR_NAME_MAX];
    int priority;
    uint64_t number;            /* number of the registration */
    loch_allocator *allocator;  /* retained; NULL for a factory */
    loch_attributes attributes; /* of the allocator */
    loch_allocator_factory *factory;
    void *user;
    lochi_registry_made *made;
    unsigned users;  /* threads that make an allocator or wait for one */
    bool is_removed; /* no new allocator is made */
} lochi_registry_entry;

/* A thread that waits for an allocator that another thread makes. On the stack of the waiting thread. */
typedef struct lochi_registry_waiter {
    struct lochi_registry_waiter *next;
    uint64_t thread, maker;
    const lochi_registry_made *made; /* NULL once the allocator is made or has failed */
} lochi_registry_waiter;

/* The registry of the process. The lock guards all members. */
typedef struct lochi_registry_state {
    lochi_lock lock;            /* LOCHI_RANK_REGISTRY */
    pthread_cond_t cond;        /* signalled when an allocator is made, or a thread leaves an entry */
    lochi_registry_entry *list; /* highest priority first, then lowest number */
    uint64_t number;            /* number of the last registration */
    lochi_registry_entry own;   /* the library's own allocators, made by the factory of lochi_registry_get_own */
    /* Allocators that were set; only `made` is used, with the attributes of the allocators. */
    lochi_registry_entry set;
    lochi_registry_waiter *waiters;
} lochi_registry_state;

extern lochi_registry_state lochi_registry;

/* Releases what was made, or set, for a device. Called without the lock. */
void lochi_registry_free_made(lochi_registry_made *made);

/* Releases everything that an entry holds. Called without the lock. */
void lochi_registry_empty(lochi_registry_entry *entry);

#endif
