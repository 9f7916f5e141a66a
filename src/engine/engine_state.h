/* SPDX-License-Identifier: MIT */
/* The state of engines.
 *
 * One thread writes an engine while it is opened. After that the members are read without a lock until the close. The
 * members that a lock guards are marked below. */
#ifndef LOCHI_ENGINE_STATE_H
#define LOCHI_ENGINE_STATE_H

#include "base/fork.h"
#include "base/lock.h"
#include "device/current.h"
#include <loch/engine.h>
#include <stdatomic.h>
#include <stdbool.h>

/* A stay that one loch_engine_lock has begun (engine_lock.c). */
typedef struct lochi_lock_stay {
    struct lochi_lock_stay *below; /* earlier stay of the same lock */
    lochi_stay stay;
} lochi_lock_stay;

/* The lock of a seat. Programs hold it for any time and around any call. So it has no rank, and the library holds no
 * other lock when it takes this one. */
typedef struct lochi_seat_lock {
    pthread_mutex_t mutex;
    /* lochi_thread_number; 0: free. Relaxed: a thread finds its own number only if it wrote it */
    _Atomic uint64_t owner;
    size_t depth;           /* used by the owner only */
    atomic_bool is_outside; /* the owner is not a worker of the engine; written by the owner */
    lochi_lock_stay *stays; /* one for each loch_engine_lock that made the device current; newest first */
} lochi_seat_lock;

/* One function call for one seat (engine_each.c). Lies in the stack frame of loch_engine_for_each. */
typedef struct lochi_call {
    struct lochi_call *next; /* in one of the seat's lists: `calls` or `heads` */
    loch_engine *engine;
    loch_engine_function *function;
    void *user;
    uint64_t family;
    unsigned seat;
    enum { LOCHI_CALL_WAITING, LOCHI_CALL_RUNNING, LOCHI_CALL_ENDED } state; /* guarded by each_lock */
    bool is_left; /* its task came and left the call to the head of its family */
    bool is_head;
    loch_task *task;    /* NULL if it could not be queued */
    loch_error outcome; /* written by the running thread until the call has ended */
} lochi_call;

/* One loch_engine_for_each that begins a family of calls (engine_each.c). Lies in its stack frame. */
typedef struct lochi_family {
    struct lochi_family *next; /* a later family */
} lochi_family;

/* One device of an engine. */
typedef struct lochi_seat {
    loch_device *device;
    loch_allocator *allocator; /* a pool, or a direct allocator */
    loch_workers *workers;
    /* an ended task; it keeps the bookkeeping of closed workers in memory, so that calls on them fail cleanly */
    loch_task *anchor;
    loch_stream_pool *streams;
    size_t limit_bytes; /* of the moment when the engine was opened; 0: no limit */
    lochi_seat_lock lock;
    lochi_call *calls; /* calls that have not begun, oldest first; guarded by each_lock */
    /* calls that run and whose threads run the other calls of their families; guarded by each_lock */
    lochi_call *heads;
} lochi_seat;

/* The engine's entry for a context (engine_lock.c). */
typedef struct lochi_engine_guest {
    struct lochi_engine_guest *next, **link; /* in the engine's list */
    uint64_t thread;                         /* lochi_thread_number of the owner */
} lochi_engine_guest;

struct loch_engine {
    char *name;
    bool is_direct; /* no seat has a pool */
    unsigned count; /* number of seats */
    lochi_seat *seats;
    bool *reaches; /* [from * count + to] */
    loch_timeline *timeline;
    lochi_lock lock;            /* LOCHI_RANK_ENGINE: guards the members below */
    size_t contexts;            /* number of existing contexts */
    lochi_engine_guest *guests; /* one entry for each context */
    bool is_ending;             /* a close has begun: only workers may make contexts */
    loch_nccl *nccl;            /* created on first use */
    /* LOCHI_RANK_ENGINE: guards the calls of all seats and the members below; held while calls are queued */
    lochi_lock each_lock;
    lochi_family *families;      /* families that have begun, then those that wait to begin; oldest first */
    uint64_t last_family;        /* number of the newest family */
    pthread_cond_t each_changed; /* signalled after calls were queued or a call has ended */
    bool is_forked;              /* the workers exist in the parent only; written in the child of a fork only */
    lochi_fork_item in_forks;
};

/* Returns a seat by its number. Returns NULL if there is no such seat. */
static inline lochi_seat *lochi_engine_seat(const loch_engine *engine, loch_seat seat)
{
    return engine && seat.number < engine->count ? &engine->seats[seat.number] : NULL;
}

/* Returns the seat whose worker the calling thread is. Returns the number of seats if the thread is not a worker. */
unsigned lochi_engine_find_worker(const loch_engine *engine);

/* Adds the number of a seat to the sentence of the thread's error record, which belongs to `status`. Returns
 * `status`. */
loch_status lochi_engine_fail_at(unsigned seat, loch_status status);

/* Fails with E_FORKED: the workers do not exist in the child. */
loch_status lochi_engine_refuse_forked(const loch_engine *engine);

#endif
