/* SPDX-License-Identifier: MIT */
/* fork() in a process with threads. The child has one thread, the one that forked. A lock that another thread held
 * would stay held in the child forever. So before a fork all locks of the library are taken, and the parts below bring
 * everything else to rest. Parent and child undo that, and the child forgets the threads that do not exist in it.
 *
 * Locks register themselves (base/lock.h). A part is a set of functions of one file that run around a fork. Objects
 * join a part with lochi_fork_enter and leave it with lochi_fork_leave; the part walks its `items` itself. */
#ifndef LOCHI_FORK_H
#define LOCHI_FORK_H

#include "base/shared.h"
#include "base/lock_state.h"

typedef struct lochi_fork_item {
    struct lochi_fork_item *next, **link;
} lochi_fork_item;

typedef struct lochi_fork_part {
    /* Each function may be NULL. During the first three the fork holds every lock of the library: they can neither
     * take a lock nor test one. */
    void (*prepare)(void); /* before the fork; may wait for threads that hold no lock */
    void (*parent)(void);  /* after the fork, in the parent: undoes `prepare` */
    /* After the fork, in the child: undoes `prepare` and forgets the other threads. Parts run in the order in which
     * they were added. */
    void (*child)(void);
    /* In the child, after all of `child`: ordinary code that may take locks. Not called if the thread that forked holds
     * a lock of the library, inside a callback. */
    void (*settle)(void);
    bool is_first; /* runs before parts that were added earlier (base/thread.c) */
    lochi_fork_item *items;
    atomic_bool is_added;
    struct lochi_fork_part *next;
} lochi_fork_part;

/* Adds a part for the life of the process. Adding a part again does nothing. A part of a lower layer must be added
 * earlier or set `is_first`. */
void lochi_fork_add(lochi_fork_part *part);

/* Enter an object into the items of a part, and remove it. Remove it before any of it is undone. */
LOCHI_SHARED void lochi_fork_enter(lochi_fork_part *part, lochi_fork_item *item);
LOCHI_SHARED void lochi_fork_leave(lochi_fork_item *item);

/* Adds a lock to the list that forks take. A second call does nothing. For base/lock.c. */
void lochi_fork_list(lochi_lock *lock);

/* Removes a lock from the list. Waits for a fork that holds the lock. For base/lock.c. */
void lochi_fork_unlist(lochi_lock *lock);

#endif
