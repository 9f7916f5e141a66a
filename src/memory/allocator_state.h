/* SPDX-License-Identifier: MIT */
/* The state of an allocator, and the accessors of its fields. */
#ifndef LOCHI_ALLOCATOR_STATE_H
#define LOCHI_ALLOCATOR_STATE_H

#include "base/lock.h"
#include "base/tree.h"
#include "memory/bump.h"
#include "memory/ledger/ledger.h"
#include <loch/session.h>
#include <stdatomic.h>
#include <stdbool.h>

#define LOCHI_ALLOCATOR_NAME_MAX 64
#define LOCHI_ALLOCATOR_BYTES_MAX ((size_t)1 << 47) /* of a block; larger than any address space */
#define LOCHI_ALLOCATOR_DEPTH_MAX 32 /* wrappers around one allocator; each depth has its own lock rank */

/* A span of time with peaks of its own: since an allocator's last reset, or a measuring scope (profile.c). A scope
 * is in the list of the allocator that keeps the statistics. */
typedef struct lochi_scope {
    struct lochi_scope *next;
    loch_stats peaks; /* highest peaks of the segments that ended since the scope began */
} lochi_scope;

/* Statistics that a wrapper with get_stats takes over from the wrapped allocator. */
typedef enum lochi_forwards {
    LOCHI_FORWARDS_NOTHING,  /* none that the library knows of */
    LOCHI_FORWARDS_RESERVED, /* reserved and cached bytes; the wrapper counts its blocks itself */
    LOCHI_FORWARDS_ALL       /* all; the wrapper adds to some of them */
} lochi_forwards;

/* Where the library finds out whether a block belongs to an allocator. */
typedef enum lochi_account {
    LOCHI_ACCOUNT_LEDGER, /* in a ledger that the library keeps */
    LOCHI_ACCOUNT_OWN,    /* in the allocator itself, through its slots */
    LOCHI_ACCOUNT_BELOW,  /* in the wrapped allocator, which serves this wrapper alone */
    LOCHI_ACCOUNT_NOTES   /* in the notes of a session; the blocks belong to the wrapped allocator (session.c) */
} lochi_account;

/* One pressure function (retry.c). */
typedef struct lochi_pressure {
    struct lochi_pressure *next;
    loch_pressure_function *function;
    void *user;
    unsigned users;  /* threads inside the function */
    bool is_leaving; /* the function is being removed; no thread calls it any more */
    bool is_left;    /* it was removed from inside: the last thread that leaves it removes the record */
} lochi_pressure;

struct loch_allocator {
    loch_allocator_ops ops; /* an empty slot means: use the wrapped allocator or the ledger */
    void *self;
    loch_device *device;
    loch_allocator *wrapped;
    loch_allocator *keeper;  /* allocator that keeps the statistics: this one, or the nearest wrapped one that does */
    struct lochi_pool *pool; /* the pool behind this allocator, or NULL */
    lochi_bump *arena;       /* of an arena: its present piece; else NULL */
    /* `pool`, for the fast paths; NULL while the allocator is recorded: then these calls take the paths that record. */
    _Atomic(struct lochi_pool *) fast_pool;
    atomic_uint recorded; /* number in the recording plus one; 0: not recorded (recorder/recorder.h) */
    /* Live blocks, if `account` is LOCHI_ACCOUNT_LEDGER; else NULL. A wrapper's statistics do not come from here. */
    lochi_ledger *ledger;
    lochi_tree_node node; /* in the table of all allocators, ordered by age (owner.c) */
    /* For searches by address (owner.c); guarded by lochi_regions_lock. */
    bool is_listed;                               /* in the table */
    struct loch_allocator *opaque, **opaque_link; /* next allocator that each search asks; NULL: found by its memory */
    struct loch_allocator *around;                /* wrapper that has LOCHI_ACCOUNT_BELOW; NULL for none */
    lochi_ledger *searched;                       /* ledger with all of its blocks; NULL for none. Never changes */
    uint32_t traits;
    lochi_forwards forwards;
    lochi_account account;
    /* Called for a refused free of an address that is not a block of this allocator, which the free slot does not
     * see. May be NULL. */
    void (*hear_refused)(void *self, void *address, loch_stream *stream, loch_status status);
    atomic_size_t live;     /* for the allocator of a session: blocks that keep it alive */
    atomic_uint waiters;    /* threads that wait for a free; read by every free */
    atomic_bool is_closing; /* the last reference was released while blocks are live; read by every free */
    _Atomic uint64_t user;  /* 0: unused; number of the only thread that used it; or LOCHI_USERS_SEVERAL */
    _Atomic(struct allocator_latency *) latency; /* NULL while measuring is off */
    struct allocator_latency *latency_kept;      /* the histograms, from their creation to the end; under `lock` */
    atomic_size_t references;
    _Atomic uint32_t live_source; /* number of the name in reports of live blocks, plus one; 0: none yet (live/) */
    loch_session *session;        /* session whose allocator this is or wraps; else NULL */
    atomic_size_t session_count;  /* number of blocks in sessions; read by every free */
    lochi_tree session_blocks;    /* notes on those blocks; under the lock of sessions */
    char name[LOCHI_ALLOCATOR_NAME_MAX];
    lochi_lock lock;         /* LOCHI_RANK_ALLOCATOR: guards the members below */
    loch_stats base;         /* counts at the last reset */
    lochi_scope since_reset; /* in the list of the keeper, under the keeper's lock */
    /* Of a wrapper that is its own keeper: since its segment began; in the list of the next keeper below. */
    lochi_scope below;
    lochi_scope *scopes; /* list of a keeper */
    lochi_pressure *pressure;
    struct life_abandoned *abandoned; /* blocks without an owner that could not be freed yet */
    uint64_t retries, waits_ns;
};

#define LOCHI_USERS_SEVERAL UINT64_MAX

/* Returns the bytes to allocate for a complete request. The request was checked, so the sum does not overflow. */
static inline size_t lochi_request_round(const loch_request *request)
{
    const size_t round = request->round_bytes;
    return round > 1 ? (request->bytes + round - 1) / round * round : request->bytes;
}

/* Returns whether a free with this status has freed the block. E_CORRUPT reports a write outside the block; the
 * block is freed anyway. */
static inline bool lochi_is_freed(loch_status status)
{
    return status == LOCH_OK || status == LOCH_E_CORRUPT;
}

/* Sets which statistics a wrapper forwards, so that their peaks survive segments that others end below the wrapper.
 * For wrappers of the library that have get_stats; called before the wrapper is used. */
static inline void lochi_account_forward(loch_allocator *wrapper, lochi_forwards forwards)
{
    wrapper->forwards = forwards;
}

#endif
