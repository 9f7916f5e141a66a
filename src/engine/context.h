/* SPDX-License-Identifier: MIT */
/* The inside of contexts, for src/engine alone.
 *
 *   context ──► engine          counted in there, so that it stays
 *      ├──► seats: stream, stack of pools, cuBLAS handle of each; an entry for every seat of the engine, in the engine's order
 *      ├──► guards: a stack; each entry has what is to be put back
 *      ├──► copies: a table of kept copies
 *      └──► meter: held by the buffers, too, which outlive the context
 *
 * One thread has all of it, so nothing here is locked or atomic. Tensors know nothing of the context that they came from. */
#ifndef LOCHI_CONTEXT_H
#define LOCHI_CONTEXT_H

#include "base/fail.h"
#include "engine/engine.h"
#include "tensor/buffer/buffer.h"
#include <loch/context.h>
#include <stdbool.h>

/* A pool on the stack of a seat. */
typedef struct lochi_context_pool {
    struct lochi_context_pool *below;
    loch_allocator *allocator; /* held */
    bool was_using_pools;      /* of the seat, before it was pushed */
} lochi_context_pool;

/* What a context has on a seat of its engine. */
typedef struct lochi_context_seat {
    bool is_mine;              /* the context may use it */
    bool uses_pools;           /* tensors come from the stack, if there is one */
    loch_stream *own;          /* from the seat's pool of streams; NULL until it is first used */
    loch_stream *set;          /* the user's, borrowed; NULL: the own one is current */
    lochi_context_pool *pools; /* the top first */
    loch_cublas *cublas;       /* NULL until it is asked for */
} lochi_context_seat;

/* Kept copies (context_copies.c). All zero is an empty table. */
typedef struct lochi_copies {
    struct context_copy **buckets; /* NULL, or as many as a power of two */
    size_t buckets_count;
    size_t count;          /* entries */
    size_t bytes;          /* in the copies */
    uint64_t seen_changes; /* of all watches, when stale entries were last looked for */
} lochi_copies;

struct loch_context {
    loch_context *next;  /* of the same thread */
    loch_engine *engine; /* entered; NULL for a context that is half made */
    uint64_t thread;     /* lochi_thread_number of its owner */
    char *name;
    lochi_context_seat *seats; /* engine->count */
    unsigned *order;           /* the seats that are the context's, as they were given */
    size_t order_count;
    unsigned current; /* seat */
    uint32_t flags;
    loch_tag tag;
    int debug;
    struct context_guard *guards; /* the last one begun first */
    lochi_copies copies;
    lochi_meter *meter;
};

/* E_INVALID for NULL, E_WRONG_THREAD for another thread's; the first thing in every call. */
loch_status lochi_context_check(const loch_context *context);

/* E_NOT_FOUND for a seat that the context does not have. */
loch_status lochi_context_check_seat(const loch_context *context, loch_seat seat);

/* The calling thread's contexts: whether this is one of them, without looking into it. */
bool lochi_context_is_known(const loch_context *context);

/* How many contexts of an engine the calling thread has. */
size_t lochi_context_count_own(const loch_engine *engine);

/* The engine's part of a seat. */
static inline const lochi_seat *lochi_context_place(const loch_context *context, unsigned seat)
{
    return &context->engine->seats[seat];
}

/* Takes the own stream of a seat from the pool of streams, unless it is there. */
loch_status lochi_context_take_stream(loch_context *context, unsigned seat);

/* The current stream of any of its seats; the own one is taken on first use. Borrowed. */
loch_status lochi_context_stream(loch_context *context, unsigned seat, loch_stream **out);

/* Makes `to` wait, on the device where it can, for what is queued on `from`, a stream of `seat`. Nothing when either is captured: what
 * is captured runs with its graph, and is its owner's to order. */
loch_status lochi_context_order(const loch_context *context, unsigned seat, loch_stream *from, loch_stream *to);

/* --- guards (context_guard.c) --- */

/* Undoes all of them, the last one begun first. */
void lochi_context_end_guards(loch_context *context);

/* --- memory (context_memory.c) --- */

/* What tensors of a seat come from now. Borrowed. */
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

/* Counts a new tensor of its own. */
void lochi_context_count(loch_context *context, const loch_tensor *tensor);

/* Takes all pools off the stack of a seat. */
void lochi_context_pop_all(lochi_context_seat *seat);

/* --- copies (context_copies.c) --- */

/* Drops copies whose source was written or has gone. One load when there was no write at all. */
void lochi_copies_sweep(loch_context *context);

/* Drops all on a device; NULL: on all of them. Returns how many bytes they had. */
size_t lochi_copies_drop(loch_context *context, const loch_device *device);

/* Drops all, and ends the table. */
void lochi_copies_end(loch_context *context);

#endif
