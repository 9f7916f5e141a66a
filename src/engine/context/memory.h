/* SPDX-License-Identifier: MIT */
/* Memory of contexts (memory.c). */
#ifndef LOCHI_CONTEXT_MEMORY_H
#define LOCHI_CONTEXT_MEMORY_H

#include "engine/context/state.h"

/* Returns the allocator that new tensors of a seat come from. Borrowed. */
loch_allocator *lochi_context_allocator(const loch_context *context, unsigned seat);

/* Properties of a new tensor. Zero means the default. */
typedef struct lochi_context_wish {
    loch_allocator *allocator;
    unsigned seat;
    loch_stream *stream;
    uint32_t flags;
    loch_tag tag; /* 0: the tag of the context */
    const char *name;
} lochi_context_wish;

/* Makes a tensor. If memory is short, drops kept copies on the seat's device and tries again before it fails. The meter
 * does not count the tensor. */
loch_status lochi_context_alloc(loch_context *context, const lochi_context_wish *wish, loch_dtype dtype,
                                size_t dimensions, const int64_t *shape, loch_tensor **out);

/* Counts a tensor that the context made for its user. */
void lochi_context_count(loch_context *context, const loch_tensor *tensor);

/* Pops all pools of the stack of a seat. */
void lochi_context_pop_all(lochi_context_seat *seat);

#endif
