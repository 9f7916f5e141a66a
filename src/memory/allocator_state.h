/* SPDX-License-Identifier: MIT */
/* The state of an allocator, and the accessors of its fields. */
#ifndef LOCHI_ALLOCATOR_STATE_H
#define LOCHI_ALLOCATOR_STATE_H

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
    _Atomic(struct allocator_latency *) latency; /* NULL while nothing is measured */
    struct allocator_latency *latency_kept;      /* the same once it was made, until the end; under lock */
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
    struct life_abandoned *abandoned; /* blocks that nobody has and that could not be freed yet */
    uint64_t retries, waits_ns;
};

#define LOCHI_USERS_SEVERAL UINT64_MAX

/* What memory is to be taken for a complete request, which was checked: it does not overflow. */
static inline size_t lochi_request_round(const loch_request *request)
{
    const size_t round = request->round_bytes;
    return round > 1 ? (request->bytes + round - 1) / round * round : request->bytes;
}

/* Tells whether a block has gone: one that a guard found to be written around is freed all the same. */
static inline bool lochi_is_freed(loch_status status)
{
    return status == LOCH_OK || status == LOCH_E_CORRUPT;
}

/* Says of a new pool that its blocks come and go the short way. */
static inline void lochi_allocator_set_pool(loch_allocator *allocator, struct lochi_pool *pool)
{
    allocator->pool = pool;
}

/* Says of a new wrapper of the library that has get_stats, before anybody uses it, which figures it forwards: those peaks then
 * survive segments that others end below it. */
static inline void lochi_account_forward(loch_allocator *wrapper, lochi_forwards forwards)
{
    wrapper->forwards = forwards;
}

#endif
