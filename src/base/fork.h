/* SPDX-License-Identifier: MIT */
/* fork() in a process with threads. The child has one thread, the one that forked: what others held there would stay held for
 * good. So before a fork all locks of the library are taken, and whatever is not a lock is brought to rest by the parts
 * below; parent and child let go again, and the child forgets the threads that it does not have.
 *
 * Locks are found by themselves (base/lock.h). A part is what else a file has to do; it is told of objects by
 * lochi_fork_enter and lochi_fork_leave, and walks `items` by itself. */
#ifndef LOCHI_FORK_H
#define LOCHI_FORK_H

#include "base/lock_state.h"

typedef struct lochi_fork_item {
    struct lochi_fork_item *next, **link;
} lochi_fork_item;

typedef struct lochi_fork_part {
    /* Each may be NULL. In the first three every lock is held, by nobody: none can be taken or asked for. */
    void (*prepare)(void); /* before the fork; may wait for threads that hold no lock */
    void (*parent)(void);  /* after it: undoes prepare */
    void (*child)(void);   /* undoes prepare, and forgets the other threads; parts run in the order of their adding */
    void (*settle)(
        void);     /* in the child, later: ordinary code. Left out when the thread that forked holds a lock of the
                            * library itself, inside of some callback */
    bool is_first; /* runs before the parts that were added earlier: threads (base/thread.c) */
    lochi_fork_item *items;
    atomic_bool is_added;
    struct lochi_fork_part *next;
} lochi_fork_part;

/* Adds a part for the life of the process; again does nothing. A part of a lower layer has to be added before, or be first. */
void lochi_fork_add(lochi_fork_part *part);

/* Enters an object into a part's items, and takes it out: before anything of it is undone. */
void lochi_fork_enter(lochi_fork_part *part, lochi_fork_item *item);
void lochi_fork_leave(lochi_fork_item *item);

/* Lists a lock, so that forks take it; again does nothing. For base/lock.c. */
void lochi_fork_list(lochi_lock *lock);

/* Takes a lock off the list; waits for a fork that holds it. For base/lock.c. */
void lochi_fork_unlist(lochi_lock *lock);

#endif
