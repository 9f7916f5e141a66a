/* SPDX-License-Identifier: MIT */
/* Changing the size of a block. */
#ifndef LOCHI_REALLOC_H
#define LOCHI_REALLOC_H

#include "memory/allocator_state.h"

/* Resizes a live block as loch_allocator_realloc does, with an alignment for the case that it moves, and with contents that may be lost;
 * the tag stays that of the block. */
loch_status lochi_allocator_resize(loch_allocator *allocator, void *address, const loch_request *request,
                                   bool keeps_contents, void **out);

/* Resizes a live block in place. A refusal (E_UNSUPPORTED and shortages) leaves the error record alone. */
loch_status lochi_allocator_resize_in_place(loch_allocator *allocator, void *address, size_t bytes, size_t *allocated);

#endif
