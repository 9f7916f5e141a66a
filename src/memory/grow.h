/* SPDX-License-Identifier: MIT */
/* Growable blocks, as the dispatch and the wrappers see them. */
#ifndef LOCHI_GROW_H
#define LOCHI_GROW_H

#include "memory/allocator_state.h"

/* Changes the size of a growable block in place, with retries. Sets `max_bytes` to what is reserved for it, or to 0 if
 * there is no growable block (E_FOREIGN). */
loch_status lochi_grow(loch_allocator *allocator, void *address, size_t bytes, size_t *max_bytes);

/* Tells whether a growable block starts at an address. Looks through wrappers. */
bool lochi_grow_concerns(const loch_allocator *allocator, const void *address);

/* Makes one attempt to resize a growable block, for the slot `resize` of wrappers of the library. Returns E_UNSUPPORTED
 * for another block, and then leaves the error record alone. */
loch_status lochi_grow_pass(loch_allocator *wrapped, void *address, size_t bytes, size_t *allocated);

#endif
