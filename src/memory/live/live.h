/* SPDX-License-Identifier: MIT */
/* The door of the live room: a table of the blocks that are handed out now, with the call stacks of their allocations.
 * It exists while the option "leaks" asks for it, and is printed when the process ends (report.c).
 *
 * The table has the blocks of allocators that wrap no other one, so a block that passes through wrappers counts once.
 * Blocks that the library allocates for itself are hidden (lochi_live_hide). While the table exists, the fast paths of
 * pools stay closed, and every call below comes from the slow path. Any thread. Nothing is called with a lock held. */
#ifndef LOCHI_LIVE_H
#define LOCHI_LIVE_H

#include "base/shared.h"
#include "kit/hint.h"
#include "memory/allocator_state.h"
#include "memory/live/state.h"

extern atomic_bool lochi_live_is_on; /* set once, and cleared never */

/* Starts the table if the option "leaks" asks for it. Called before an allocator is made. */
LOCH_MUST_USE loch_status lochi_live_prepare(void);

/* Returns whether there is a table. Relaxed: allocators that were made before it began have no blocks in it. */
static inline bool lochi_live_is_kept(void)
{
    return LOCHI_UNLIKELY(atomic_load_explicit(&lochi_live_is_on, memory_order_relaxed));
}

/* Add and remove a block; for the inline functions below. */
void lochi_live_enter(loch_allocator *allocator, const void *address, size_t bytes, loch_tag tag);
bool lochi_live_leave(const loch_allocator *allocator, const void *address, lochi_live_block *out);
/* Puts a block back that could not be freed. */
void lochi_live_put_back(const lochi_live_block *block);
void lochi_live_change(const loch_allocator *allocator, const void *from, const void *to, size_t bytes);

/* Adds a block that `allocator`, which wraps none, has handed out. */
static inline void lochi_live_add(loch_allocator *allocator, const void *address, size_t bytes, loch_tag tag)
{
    if (lochi_live_is_kept()) lochi_live_enter(allocator, address, bytes, tag);
}

/* Removes a block before it is given back, and writes it to `out`. Returns false if the table does not have it. */
static inline bool lochi_live_remove(const loch_allocator *allocator, const void *address, lochi_live_block *out)
{
    return lochi_live_is_kept() && lochi_live_leave(allocator, address, out);
}

/* Notes that a block has another address, and keeps its call stack. */
static inline void lochi_live_move(const loch_allocator *allocator, const void *from, const void *to)
{
    if (lochi_live_is_kept()) lochi_live_change(allocator, from, to, SIZE_MAX);
}

/* Notes that a block has another size. */
static inline void lochi_live_resize(const loch_allocator *allocator, const void *address, size_t bytes)
{
    if (lochi_live_is_kept()) lochi_live_change(allocator, address, address, bytes);
}

/* Removes a block that its owner has released and the library frees later. Looks through wrappers. */
void lochi_live_forget(const loch_allocator *allocator, const void *address);

/* Between the two calls, the calling thread allocates for the library itself: such blocks are not added. Calls nest. */
LOCHI_SHARED void lochi_live_hide(void);
LOCHI_SHARED void lochi_live_show(void);

/* Returns the call stack of the allocation of a live block; NULL if it is not known. Looks through wrappers. */
const lochi_live_stack *lochi_live_find(const loch_allocator *allocator, const void *address);

#endif
