/* SPDX-License-Identifier: MIT */
/* The state of engines.
 *
 * An engine is written while it is opened, by one thread, and read until its shutdown without a lock. What a lock
 * guards says so. */
#ifndef LOCHI_ENGINE_STATE_H
#define LOCHI_ENGINE_STATE_H

#include "base/fork.h"
#include "base/lock.h"
#include "device/current.h"
#include <loch/engine.h>
#include <stdatomic.h>
#include <stdbool.h>

/* A stay that a loch_engine_lock has begun (engine_lock.c). */
typedef struct lochi_lock_stay {
    struct lochi_lock_stay *below; /* of the same lock */
    lochi_stay stay;
} lochi_lock_stay;

/* The lock of a seat. It is the users', who hold it as long as they like and around any call; so it has no rank, and
 * the library holds nothing when it is taken. */
typedef struct lochi_seat_lock {
    pthread_mutex_t mutex;
    _Atomic uint64_t owner; /* lochi_thread_number; 0: nobody. Relaxed: a thread finds its own only if it wrote it */
    size_t depth;           /* the owner's alone */
    atomic_bool is_outside; /* held by a thread that is no worker of the engine; written by the owner */
    lochi_lock_stay *stays; /* one for each loch_engine_lock that has made the device current; the last first */
} lochi_seat_lock;

/* One function that is to run for one seat (engine_each.c); in the frame of loch_engine_for_each. */
typedef struct lochi_call {
    struct lochi_call *next; /* in a list of the seat: of those that nobody has begun, or of heads */
    loch_engine *engine;
    loch_engine_function *function;
    void *user;
    uint64_t family;
    unsigned seat;
    enum { LOCHI_CALL_WAITING, LOCHI_CALL_RUNNING, LOCHI_CALL_ENDED } state; /* under each_lock */
    bool is_left; /* to its family's head: its task has come, and gone */
    bool is_head;
    loch_task *task;    /* NULL when it could not be queued */
    loch_error outcome; /* the runner's until it has ended */
} lochi_call;

/* One loch_engine_for_each that makes a family of calls (engine_each.c); on its stack. */
typedef struct lochi_family {
    struct lochi_family *next; /* a later one */
} lochi_family;

/* One device of an engine. */
typedef struct lochi_seat {
    loch_device *device;
    loch_allocator *allocator; /* a pool, or direct */
    loch_workers *workers;
    loch_task *anchor; /* has ended: keeps workers that were ended in memory, so that they say that they were */
    loch_stream_pool *streams;
    size_t limit_bytes; /* when it was opened; 0: none */
    lochi_seat_lock lock;
    lochi_call *calls; /* that nobody has begun, oldest first; under the engine's each_lock */
    lochi_call *heads; /* that run, and whose threads run the others of their families, too; likewise */
} lochi_seat;

/* A context, as its engine knows it (engine_lock.c). */
typedef struct lochi_engine_guest {
    struct lochi_engine_guest *next, **link; /* in the engine's list */
    uint64_t thread;                         /* lochi_thread_number of the owner */
} lochi_engine_guest;

struct loch_engine {
    char *name;
    bool is_direct; /* no seat has a pool */
    unsigned count; /* of seats */
    lochi_seat *seats;
    bool *reaches; /* [from * count + to] */
    loch_timeline *timeline;
    lochi_lock lock;            /* LOCHI_RANK_ENGINE: what follows */
    size_t contexts;            /* that live */
    lochi_engine_guest *guests; /* one for each of them */
    bool is_ending;             /* a shutdown is under way: only workers may make contexts */
    loch_nccl *nccl;            /* made on first use */
    lochi_lock each_lock;   /* LOCHI_RANK_ENGINE: calls of all seats, and what follows; held while they are queued */
    lochi_family *families; /* that were begun, then those that wait for it, oldest first */
    uint64_t last_family;   /* its number */
    pthread_cond_t each_changed; /* calls were queued, or one has ended */
    bool is_forked;              /* its workers are the parent's; written in the child of a fork, alone */
    lochi_fork_item in_forks;
};

/* Returns a seat by its number; NULL for one that is not there. */
static inline lochi_seat *lochi_engine_seat(const loch_engine *engine, loch_seat seat)
{
    return engine && seat.number < engine->count ? &engine->seats[seat.number] : NULL;
}

/* Returns the seat that the calling thread is a worker of; the number of seats when it is none. */
unsigned lochi_engine_find_worker(const loch_engine *engine);

/* Adds the number of a seat to the sentence of the thread's record, which is of `status`; returns `status`. */
loch_status lochi_engine_fail_at(unsigned seat, loch_status status);

/* Fails with E_FORKED: the workers are not in the child. */
loch_status lochi_engine_refuse_forked(const loch_engine *engine);

#endif
