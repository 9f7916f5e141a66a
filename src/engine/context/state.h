/* SPDX-License-Identifier: MIT */
/* The state of contexts. The door of this room is the public header, loch/context.h.
 *
 *   context ──► engine          counted in there, so that it stays
 *      ├──► seats: stream, stack of pools, cuBLAS handle of each; an entry for every seat of the engine, in the engine's order
 *      ├──► guards: a stack; each entry has what is to be put back
 *      ├──► copies: a table of kept copies
 *      └──► meter: held by the buffers, too, which outlive the context
 *
 * One thread has all of it, so nothing here is locked or atomic. Tensors know nothing of the context that they came from. */
#ifndef LOCHI_CONTEXT_STATE_H
#define LOCHI_CONTEXT_STATE_H

#include "base/fail.h"
#include "engine/engine_state.h"
#include "tensor/buffer/buffer.h"
#include "tensor/tensor.h"
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

/* What a tensor shows, and where it is wanted. */
typedef struct lochi_copy_key {
    uint64_t hash;
    uint64_t buffer; /* id */
    size_t offset;   /* in the whole */
    unsigned seat;
    const lochi_layout *layout;
} lochi_copy_key;

/* A kept copy. */
typedef struct lochi_copy_entry {
    struct lochi_copy_entry *next; /* in its bucket */
    lochi_copy_key key;            /* its layout is the member below */
    lochi_layout layout;
    uint64_t version;       /* of the source, before it was copied */
    lochi_watch *watch;     /* on the source; held */
    uint64_t changes;       /* of the watch, likewise */
    loch_tensor *tensor;    /* the copy */
    uint64_t own_id;        /* of the copy's buffer */
    uint64_t own_version;   /* of that buffer, after the copy was queued */
    lochi_watch *own_watch; /* on that; held */
    uint64_t own_changes;   /* of that watch, after the copy was queued */
    uint64_t stream_id;     /* that it was queued on */
    loch_event *event;      /* behind it; NULL: it has ended */
} lochi_copy_entry;

/* Kept copies (copies.c). All zero is an empty table. */
typedef struct lochi_copies {
    lochi_copy_entry **buckets; /* NULL, or as many as a power of two */
    size_t buckets_count;
    size_t count;          /* entries */
    size_t bytes;          /* in the copies */
    uint64_t seen_changes; /* of all watches, when stale entries were last looked for */
} lochi_copies;

struct loch_context {
    loch_context *next;       /* of the same thread */
    loch_engine *engine;      /* entered; NULL for a context that is half made */
    lochi_engine_guest guest; /* in the engine */
    uint64_t thread;          /* lochi_thread_number of its owner */
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

/* Returns the engine's part of a seat. */
static inline const lochi_seat *lochi_context_place(const loch_context *context, unsigned seat)
{
    return &context->engine->seats[seat];
}

#endif
