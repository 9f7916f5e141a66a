/* SPDX-License-Identifier: MIT */
/* The state of contexts. The door of this room is the public header, loch/context.h.
 *
 *   context ──► engine          counts the context, and is not closed while it exists
 *      ├──► seats: stream, stack of pools, cuBLAS handle; one entry for each seat of the engine, in its order
 *      ├──► guards: a stack; each entry holds the values to restore
 *      ├──► copies: a table of kept copies
 *      └──► meter: retained by the buffers too, which may outlive the context
 *
 * A context belongs to one thread, so nothing here is locked or atomic. Tensors have no pointer to the context that
 * made them. */
#ifndef LOCHI_CONTEXT_STATE_H
#define LOCHI_CONTEXT_STATE_H

#include "base/fail.h"
#include "engine/engine_state.h"
#include "memory/buffer/buffer.h"
#include "tensor/tensor.h"
#include <loch/context.h>
#include <stdbool.h>

/* A pool on the stack of a seat. */
typedef struct lochi_context_pool {
    struct lochi_context_pool *below;
    loch_allocator *allocator; /* retained */
    bool was_using_pools;      /* uses_pools of the seat before the push */
} lochi_context_pool;

/* The part of a context that belongs to one seat of its engine. */
typedef struct lochi_context_seat {
    bool is_mine;              /* the context may use the seat */
    bool uses_pools;           /* tensors come from the top of the stack, if it is not empty */
    loch_stream *own;          /* from the seat's pool of streams; NULL until first use */
    loch_stream *set;          /* set by the user, borrowed; NULL: `own` is current */
    lochi_context_pool *pools; /* the stack, top first */
    loch_cublas *cublas;       /* NULL until first use */
} lochi_context_seat;

/* The key of a kept copy: what the tensor shows, and the seat of the copy. */
typedef struct lochi_copy_key {
    uint64_t hash;
    uint64_t buffer; /* id of the buffer */
    size_t offset;   /* in the whole buffer */
    unsigned seat;
    const lochi_layout *layout;
} lochi_copy_key;

/* A kept copy. */
typedef struct lochi_copy_entry {
    struct lochi_copy_entry *next; /* in the bucket */
    lochi_copy_key key;            /* its layout points to the member below */
    lochi_layout layout;
    uint64_t version;       /* of the source, read before the copy */
    lochi_watch *watch;     /* on the source; retained */
    uint64_t changes;       /* of `watch`, read before the copy */
    loch_tensor *tensor;    /* the copy */
    uint64_t own_version;   /* of the copy's buffer, read after the copy was queued */
    lochi_watch *own_watch; /* on the copy's buffer; retained */
    uint64_t own_changes;   /* of `own_watch`, read after the copy was queued */
    uint64_t stream_id;     /* of the stream that the copy was queued on */
    loch_event *event;      /* recorded after the copy; NULL: the copy has ended */
} lochi_copy_entry;

/* The table of kept copies (copies.c). All zero is an empty table. */
typedef struct lochi_copies {
    lochi_copy_entry **buckets; /* NULL, or an array whose size is a power of two */
    size_t buckets_count;
    size_t count;          /* entries */
    size_t bytes;          /* of all copies */
    uint64_t seen_changes; /* the sum over all watches at the last search for stale entries */
} lochi_copies;

struct loch_context {
    loch_context *next;       /* next context of the thread */
    loch_engine *engine;      /* the context is counted in it; NULL while the context is half made */
    lochi_engine_guest guest; /* entry in the engine's list */
    uint64_t thread;          /* lochi_thread_number of the owner thread */
    char *name;
    lochi_context_seat *seats; /* engine->count entries */
    unsigned *order;           /* the seats of this context, in the order of the options */
    size_t order_count;
    unsigned current; /* number of the current seat */
    uint32_t flags;
    loch_tag tag;
    size_t round_bytes; /* of tensors */
    int debug;
    struct context_guard *guards; /* the stack, newest first */
    lochi_copies copies;
    lochi_meter *meter;
};

/* Returns the engine's entry of a seat. */
static inline const lochi_seat *lochi_context_place(const loch_context *context, unsigned seat)
{
    return &context->engine->seats[seat];
}

#endif
