/* SPDX-License-Identifier: MIT */
/* Changing the size of a block. */
#ifndef LOCHI_REALLOC_H
#define LOCHI_REALLOC_H

#include "memory/allocator_state.h"

/* Resizes a live block like loch_allocator_realloc, with an alignment in case the block moves. Without
 * `keeps_contents` the contents may be lost. The block keeps its tag. */
loch_status lochi_allocator_resize(loch_allocator *allocator, void *address, const loch_request *request,
                                   bool keeps_contents, void **out);

/* Resizes a live block in place. A refusal (E_UNSUPPORTED, or memory is short) leaves the error record alone. */
loch_status lochi_allocator_resize_in_place(loch_allocator *allocator, void *address, size_t bytes, size_t *allocated);

#endif
