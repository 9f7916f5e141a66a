/* SPDX-License-Identifier: MIT */
/* The table of all allocators of the process, and the search for the allocator of a block by address (owner.c). */
#ifndef LOCHI_OWNER_H
#define LOCHI_OWNER_H

#include "memory/allocator_state.h"

/* Adds a new allocator as the youngest. */
void lochi_owner_add(loch_allocator *allocator);

/* Lets searches find an allocator by its memory instead of asking it each time: by the chunks of its ledger, or, if
 * `ledger` is NULL, by the spans that a pool enters. Called before the first block of the allocator. */
void lochi_owner_index(loch_allocator *allocator, lochi_ledger *ledger);

/* Removes an allocator before its destruction. Returns when no other thread queries it any more. The caller is
 * inside no allocator. */
void lochi_owner_remove(loch_allocator *allocator);

/* Finds the outermost allocator that has a block at an address, and enters it (base/hazard.h). E_FOREIGN,
 * E_INTERIOR, E_DOUBLE_FREE; E_UNSUPPORTED: two unrelated allocators have the block. */
loch_status lochi_owner_enter(const void *address, loch_allocator **out, uint32_t *mark);

/* Calls `visit` for every allocator of the table, without locks; it is not destroyed meanwhile. */
void lochi_owner_visit(void (*visit)(loch_allocator *allocator, void *user), void *user);
/* Calls `visit` for every allocator of the table, in the child of a fork, while all locks are held. */
void lochi_owner_visit_forked(void (*visit)(loch_allocator *allocator));

/* Returns whether the calling thread may call the slots of an allocator: it is complete, and it is thread-safe or no
 * other thread ever used it. */
bool lochi_owner_may_ask(const loch_allocator *allocator);

#endif
