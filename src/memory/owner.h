/* SPDX-License-Identifier: MIT */
/* The table of all allocators of the process, and whose a block is by its address alone (owner.c). */
#ifndef LOCHI_OWNER_H
#define LOCHI_OWNER_H

#include "memory/allocator.h"

/* Enters a new allocator, behind all that are there. */
void lochi_owner_add(loch_allocator *allocator);

/* Takes an allocator out that is about to end; returns when nobody asks it any more. The caller is not inside any. */
void lochi_owner_remove(loch_allocator *allocator);

#endif
