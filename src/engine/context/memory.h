/* SPDX-License-Identifier: MIT */
/* Memory of contexts (memory.c). */
#ifndef LOCHI_CONTEXT_MEMORY_H
#define LOCHI_CONTEXT_MEMORY_H

#include "engine/context/state.h"

/* Returns what tensors of a seat come from now. Borrowed. */
loch_allocator *lochi_context_allocator(const loch_context *context, unsigned seat);

/* What a new tensor is to be; zero means default. */
typedef struct lochi_context_wish {
    loch_allocator *allocator;
    unsigned seat;
    loch_stream *stream;
    uint32_t flags;
    loch_tag tag; /* 0: the context's */
    const char *name;
} lochi_context_wish;

/* Makes a tensor; kept copies on the seat's device are dropped before it fails for want of memory. Not counted by the meter. */
loch_status lochi_context_alloc(loch_context *context, const lochi_context_wish *wish, loch_dtype dtype,
                                size_t dimensions, const int64_t *shape, loch_tensor **out);

/* Counts a new tensor of the context's own. */
void lochi_context_count(loch_context *context, const loch_tensor *tensor);

/* Takes all pools off the stack of a seat. */
void lochi_context_pop_all(lochi_context_seat *seat);

#endif
