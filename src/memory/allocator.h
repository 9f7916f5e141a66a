/* SPDX-License-Identifier: MIT */
/* The inside of allocators, for src/memory. */
#ifndef LOCHI_ALLOCATOR_H
#define LOCHI_ALLOCATOR_H

#include "base/lock.h"
#include "base/tree.h"
#include "memory/ledger/ledger.h"
#include <loch/session.h>
#include <stdatomic.h>
#include <stdbool.h>

#define LOCHI_ALLOCATOR_NAME_MAX 64
#define LOCHI_ALLOCATOR_BYTES_MAX ((size_t)1 << 47) /* of a block: more than any address space gives */
#define LOCHI_ALLOCATOR_DEPTH_MAX 32 /* wrappers around one allocator; each depth has a lock rank of its own */

/* A span of time whose peaks are wanted: since an allocator's last reset, or a measuring scope (profile.c). In the
 * list of the allocator that keeps the figures. */
typedef struct lochi_scope {
    struct lochi_scope *next;
    loch_stats peaks; /* highest of the segments that have ended since it began */
} lochi_scope;

/* Which of the figures of a wrapper with get_stats are the wrapped allocator's. */
typedef enum lochi_forwards {
    LOCHI_FORWARDS_NOTHING,  /* as far as the library knows */
    LOCHI_FORWARDS_RESERVED, /* the wrapper keeps account of its blocks, and forwards what is held from the device */
    LOCHI_FORWARDS_ALL       /* the wrapper adds to some of them */
} lochi_forwards;

/* Who knows which blocks are an allocator's own. */
typedef enum lochi_account {
    LOCHI_ACCOUNT_LEDGER, /* a ledger that the library keeps */
    LOCHI_ACCOUNT_OWN,    /* its own slots */
    LOCHI_ACCOUNT_BELOW,  /* the wrapped allocator, which serves this wrapper alone */
    LOCHI_ACCOUNT_NOTES   /* the notes of a session: its blocks are those of the wrapped allocator (session.c) */
} lochi_account;

/* One pressure function (retry.c). */
typedef struct lochi_pressure {
    struct lochi_pressure *next;
    loch_pressure_function *function;
    void *user;
    unsigned users;  /* threads inside it */
    bool is_leaving; /* is being removed: nobody asks it any more */
} lochi_pressure;

struct loch_allocator {
    loch_allocator_ops ops; /* empty slots: the wrapped allocator's, or the ledger's */
    void *self;
    loch_device *device;
    loch_allocator *wrapped;
    loch_allocator *keeper;  /* of the figures: itself, or the nearest wrapped one that keeps any */
    struct lochi_pool *pool; /* a pool's own, for the short ways in and out; else NULL */
    lochi_ledger *ledger; /* LOCHI_ACCOUNT_LEDGER: its live blocks; of a wrapper, the figures are others'. Else NULL */
    lochi_tree_node node; /* in the table of all allocators, by age (owner.c) */
    uint32_t traits;
    lochi_forwards forwards;
    lochi_account account;
    void (*hear_refused)(void *self, void *address, loch_stream *stream, loch_status status); /* a free of what is not
        its own, which the slot does not see; may be NULL */
    atomic_size_t live;     /* of a session's own allocator: what keeps it */
    atomic_uint waiters;    /* threads that wait for a free; frees look at it */
    atomic_bool is_closing; /* the last reference has gone, blocks are left; frees look at it */
    _Atomic uint64_t user;  /* 0: nobody yet; number of the only thread that has used it; LOCHI_USERS_SEVERAL */
    _Atomic(struct lochi_latency *) latency; /* NULL while nothing is measured */
    struct lochi_latency *latency_kept;      /* the same once it was made, until the end; under lock */
    atomic_size_t references;
    loch_session *session;       /* whose allocator this is, or the nearest one that it wraps; else NULL */
    atomic_size_t session_count; /* its blocks in sessions; frees look at it */
    lochi_tree session_blocks;   /* those, under the lock of sessions */
    char name[LOCHI_ALLOCATOR_NAME_MAX];
    lochi_lock lock;         /* LOCHI_RANK_ALLOCATOR: the members below */
    loch_stats base;         /* counts at the last reset */
    lochi_scope since_reset; /* in the keeper's list, under the keeper's lock */
    lochi_scope below;   /* of a wrapper that is its own keeper: since its segment began, in the next keeper's list */
    lochi_scope *scopes; /* of a keeper */
    lochi_pressure *pressure;
    struct lochi_abandoned *abandoned; /* blocks that nobody has and that could not be freed yet */
    uint64_t retries, waits_ns;
};

#define LOCHI_USERS_SEVERAL UINT64_MAX

/* What memory is to be taken for a complete request, which was checked: it does not overflow. */
static inline size_t lochi_request_round(const loch_request *request)
{
    const size_t round = request->round_bytes;
    return round > 1 ? (request->bytes + round - 1) / round * round : request->bytes;
}

/* One attempt without retries: for wrappers of the library, and for the retry itself. The request is complete. */
loch_status lochi_allocator_try(loch_allocator *allocator, const loch_request *request, void **out);

/* Takes a block back, wakes waiters, ends a closing allocator. */
loch_status lochi_allocator_give_back(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream);

/* Takes a block back from whoever it is and leaves the allocator, which the caller has entered by `mark` (base/inside.h). */
loch_status lochi_allocator_free_inside(loch_allocator *allocator, uint32_t mark, void *address, size_t bytes,
                                        loch_stream *stream);

/* Counts one live block of a session's own allocator out; ends a closing one. */
void lochi_allocator_count_out(loch_allocator *wrapper);

/* Takes back a block that the failing call which took it cannot hand out; keeps the thread's error record. One that
 * cannot be freed now is kept, and tried again by trim and when the last reference goes. */
void lochi_allocator_abandon(loch_allocator *allocator, void *address, size_t bytes, loch_stream *stream);

/* Whether the block has gone: one that a guard found to be written around is freed all the same. */
static inline bool lochi_is_freed(loch_status status)
{
    return status == LOCH_OK || status == LOCH_E_CORRUPT;
}

/* loch_allocator_realloc of a live block, with an alignment for the case that it moves, and with contents that may be lost;
 * the tag stays that of the block (realloc.c). */
loch_status lochi_allocator_resize(loch_allocator *allocator, void *address, const loch_request *request,
                                   bool keeps_contents, void **out);

/* Its first half alone: in place. A refusal (E_UNSUPPORTED and shortages) leaves the error record alone. */
loch_status lochi_allocator_resize_in_place(loch_allocator *allocator, void *address, size_t bytes, size_t *allocated);

/* Tries again after pressure functions and frees; `status` is why the first attempt failed (retry.c), and failures from
 * `mark` on are those of attempts (failure.h). */
loch_status lochi_retry(loch_allocator *allocator, const loch_request *request, uint32_t mark, loch_status status,
                        void **out);

/* Says of a new pool that its blocks come and go the short way. */
static inline void lochi_allocator_set_pool(loch_allocator *allocator, struct lochi_pool *pool)
{
    allocator->pool = pool;
}

/* The longest sleep of a waiter that nobody wakes; constant but for tests. */
extern uint64_t lochi_retry_nap_ns;

/* Wakes everybody who waits for memory. */
void lochi_retry_wake(void);

/* Frees the list of pressure functions. */
void lochi_retry_fini(loch_allocator *allocator);

/* loch_wrapper_create for wrappers of the library, which know who keeps account of their blocks. */
loch_status lochi_wrapper_create(loch_allocator *wrapped, const char *name, const loch_allocator_ops *ops, void *self,
                                 lochi_account account, loch_allocator **out);

/* Live blocks now; UINT64_MAX when the allocator does not say. */
uint64_t lochi_allocator_count_live(loch_allocator *allocator);

/* Makes the allocator known to its keeper, and forgets it there. */
void lochi_account_open(loch_allocator *allocator);
void lochi_account_close(loch_allocator *allocator);

/* Said of a new wrapper of the library that has get_stats, before anybody uses it: peaks that it forwards then survive
 * segments that others end below it. */
static inline void lochi_account_forward(loch_allocator *wrapper, lochi_forwards forwards)
{
    wrapper->forwards = forwards;
}

/* Ends the present segment of an allocator's keeper: its peaks go to all scopes there. Under the allocator's lock. */
loch_status lochi_allocator_end_segment(loch_allocator *allocator);

/* Figures with counts and peaks as they are, not since the last reset. */
loch_status lochi_allocator_read_stats(loch_allocator *allocator, loch_tag tag, loch_stats *out);

/* Walks a ledger's entries as blocks. */
loch_status lochi_ledger_walk_blocks(lochi_ledger *ledger, loch_block_visitor *visitor, void *user);

/* Latencies and sizes, when they are measured (latency.c). */
void lochi_latency_note_alloc(struct lochi_latency *latency, size_t bytes, uint64_t start_ns);
void lochi_latency_note_free(struct lochi_latency *latency, uint64_t start_ns);

#endif
