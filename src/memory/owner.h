/* SPDX-License-Identifier: MIT */
/* The table of all allocators of the process, and whose a block is by its address alone (owner.c). */
#ifndef LOCHI_OWNER_H
#define LOCHI_OWNER_H

#include "memory/allocator_state.h"

/* Enters a new allocator, behind all that are there. */
void lochi_owner_add(loch_allocator *allocator);

/* Takes an allocator out that is about to end; returns when nobody asks it any more. The caller is not inside any. */
void lochi_owner_remove(loch_allocator *allocator);

/* Finds the outermost allocator that has a block at an address, and enters it (base/underway.h). E_FOREIGN, E_INTERIOR, E_DOUBLE_FREE,
 * E_UNSUPPORTED when two have it. */
loch_status lochi_owner_enter(const void *address, loch_allocator **out, uint32_t *mark);

#endif
