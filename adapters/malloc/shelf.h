/* SPDX-License-Identifier: MIT */
/* Shelves: what all threads share of a size class. A shelf has the slabs of its class that have room, and chains:
 * batches of free blocks that one thread left whole and another can take whole.
 *
 * Locks: one mutex for each shelf. No call of Loch and no second lock is made with it held, so it has no rank. A fork
 * takes all of them in the order of classes. */
#ifndef FRONT_SHELF_H
#define FRONT_SHELF_H

#include "classes.h"
#include <stdbool.h>

/* Makes the shelves. Call it once, before other threads exist. */
void front_shelf_start(void);

/* Takes up to `count` blocks of a class, or a whole chain. Blocks are linked by their first word. Returns the first
 * and writes the number to `taken`; NULL and 0 if the pool has no memory. */
void *front_shelf_take(unsigned class, unsigned count, unsigned *taken);

/* Gives back one batch of a class, linked by the first words. The shelf keeps it as a chain if it has few. */
void front_shelf_give_chain(unsigned class, void *head);

/* Gives linked blocks of a class back to their slabs. Slabs that become empty return to the pool. */
void front_shelf_give(unsigned class, void *head);

/* Gives the chains of all classes back to their slabs. */
void front_shelf_empty(void);

/* Figures of a class at one moment. */
typedef struct front_shelf_figures {
    size_t slabs;  /* slabs */
    size_t chains; /* chains on the shelf */
} front_shelf_figures;

front_shelf_figures front_shelf_read(unsigned class);

/* Takes the locks of all shelves before a fork. */
void front_shelf_prepare_fork(void);

/* Releases the locks of all shelves after a fork. In the child the locks are initialised again. */
void front_shelf_end_fork(bool is_child);

#endif
