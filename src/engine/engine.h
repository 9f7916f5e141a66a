/* SPDX-License-Identifier: MIT */
/* The inside of engines, for src/engine alone.
 *
 * Everything in an engine but what a lock is named for below is written while it is opened, by one thread, and read until its
 * shutdown without a lock. */
#ifndef LOCHI_ENGINE_H
#define LOCHI_ENGINE_H

#include "base/fork.h"
#include "device/current.h"
#include <loch/engine.h>
#include <stdatomic.h>
#include <stdbool.h>

/* The lock of a seat. It is the users', who hold it as long as they like and around any call; so it has no rank, and the library
 * holds nothing when it is taken. */
typedef struct lochi_seat_lock {
    pthread_mutex_t mutex;
    _Atomic uint64_t
        owner;    /* lochi_thread_number; 0: nobody. Relaxed: a thread finds its own number only where it wrote it */
    size_t depth; /* the owner's alone */
    atomic_bool is_outside; /* held by a thread that is no worker of the engine; written by the owner */
    struct lochi_lock_stay
        *stays; /* of the owner, one for each loch_engine_lock that has made the device current; the last first */
} lochi_seat_lock;

/* One function that is to run for one seat; in the frame of loch_engine_for_each. */
typedef struct lochi_call lochi_call;

/* Calls that belong together; engine_each.c has what it means. */
typedef struct lochi_family lochi_family;

/* One device of an engine. */
typedef struct lochi_seat {
    loch_device *device;
    loch_allocator *allocator; /* a pool, or direct */
    loch_workers *workers;
    loch_task *
        anchor; /* one that has ended: workers that were ended stay in memory while it is there, and say that they were */
    loch_stream_pool *streams;
    size_t limit_bytes; /* when it was opened; 0: none */
    lochi_seat_lock lock;
    lochi_call *calls; /* that nobody has begun, oldest first; under the engine's each_lock */
    lochi_call *heads; /* that run, and whose threads run the others of their families, too; likewise */
} lochi_seat;

struct loch_engine {
    char *name;
    bool is_direct; /* no seat has a pool */
    unsigned count; /* of seats */
    lochi_seat *seats;
    bool *reaches; /* [from * count + to] */
    loch_timeline *timeline;
    lochi_lock lock;        /* LOCHI_RANK_ENGINE: what follows */
    size_t contexts;        /* that live */
    bool is_ending;         /* a shutdown is under way: only workers may make contexts */
    loch_nccl *nccl;        /* made on first use */
    lochi_lock each_lock;   /* LOCHI_RANK_ENGINE: calls of all seats, and what follows; held while they are queued */
    lochi_family *families; /* that were begun, then those that wait for it, oldest first */
    uint64_t last_family;   /* its number */
    pthread_cond_t each_changed; /* calls were queued, or one has ended */
    bool is_forked;              /* its workers are the parent's; written in the child of a fork, alone */
    lochi_fork_item in_forks;
};

/* NULL for a seat that is not there. */
static inline lochi_seat *lochi_engine_seat(const loch_engine *engine, loch_seat seat)
{
    return engine && seat.number < engine->count ? &engine->seats[seat.number] : NULL;
}

/* Counts a context in and out: the engine is not ended while one is in. E_CANCELLED when it is ending. */
loch_status lochi_engine_enter(loch_engine *engine);
void lochi_engine_leave(loch_engine *engine);

/* The seat that the calling thread is a worker of; the number of seats when it is none. */
unsigned lochi_engine_find_worker(const loch_engine *engine);

/* Adds the seat's number to the sentence of the thread's record, which is of `status`; returns that. */
loch_status lochi_engine_fail_at(unsigned seat, loch_status status);

/* --- opening, by parts --- */

/* Checks what is wanted of a seat, without asking a device. */
loch_status lochi_engine_check_wish(const loch_engine_device *wish);

/* Computes the limits of all seats, whose devices are open, before any memory is taken. `wishes` has one entry for each. */
loch_status lochi_engine_set_limits(loch_engine *engine, const loch_engine_device *wishes);

/* The workers of one seat. `name` is of the threads. */
loch_status lochi_engine_open_workers(lochi_seat *seat, const loch_engine_device *wish, const char *name);

/* Ends and joins the workers of all seats, and forgets them. The first failure, by seat, of a task that nobody waited for.
 * @param cancelled  tasks that did not run; may be NULL */
loch_status lochi_engine_end_workers(loch_engine *engine, loch_workers_closing how, size_t *cancelled);

/* Has forks look after the engine (engine_fork.c). */
void lochi_engine_enter_forks(loch_engine *engine);
loch_status lochi_engine_refuse_forked(const loch_engine *engine);

/* In the child of a fork: calls that wait for each other in other threads are over; and a lock that another thread has. */
void lochi_engine_each_forked(loch_engine *engine);
void lochi_seat_lock_forked(lochi_seat_lock *lock);

void lochi_engine_each_init(loch_engine *engine);
void lochi_engine_each_fini(loch_engine *engine);

void lochi_seat_lock_init(lochi_seat_lock *lock);
void lochi_seat_lock_fini(lochi_seat_lock *lock);

/* Takes and gives back the lock of a seat, and leaves the current device alone. `seat` is there. E_WRONG_THREAD. */
void lochi_seat_lock_take(loch_engine *engine, loch_seat seat);
loch_status lochi_seat_lock_drop(loch_engine *engine, loch_seat seat);

/* Whether a thread that is no worker of the engine holds the lock of a seat. */
bool lochi_engine_is_locked_outside(const loch_engine *engine);

#endif
