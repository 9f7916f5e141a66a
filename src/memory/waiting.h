/* SPDX-License-Identifier: MIT */
/* Threads that wait for memory, and the list of pressure functions. */
#ifndef LOCHI_WAITING_H
#define LOCHI_WAITING_H

#include "memory/allocator_state.h"

/* The longest sleep of a waiter without a wake-up, in nanoseconds. Only tests change it. */
extern uint64_t lochi_retry_nap_ns;

/* Wakes all threads that wait for memory. */
void lochi_retry_wake(void);

/* Frees the list of pressure functions of an allocator that is destroyed. */
void lochi_retry_fini(loch_allocator *allocator);

/* A running call, on its thread's stack. Kept in a list for the child of a fork, which does not have that thread. */
typedef struct waiting_call {
    struct waiting_call *next, **link;
    uint64_t thread;
    loch_allocator *allocator; /* allocator that the call waits for; NULL: the call is in a pressure function */
    lochi_pressure *asked;
} waiting_call;

/* Adds a call to the list of running calls. */
void lochi_waiting_note(waiting_call *call);
/* Removes a call from the list of running calls. */
void lochi_waiting_forget(const waiting_call *call);

/* Leaves a pressure function that lochi_waiting_note noted. Returns the next function of the allocator. The
 * allocator's lock is held. */
lochi_pressure *lochi_waiting_leave(loch_allocator *allocator, const waiting_call *call);

/* Makes frees of an allocator, and of all allocators that it wraps, wake the calling thread until lochi_waiting_end. */
void lochi_waiting_begin(loch_allocator *allocator);
void lochi_waiting_end(loch_allocator *allocator);

/* Returns the number of the last free that woke waiters. */
uint64_t lochi_waiting_get_generation(void);
/* Sleeps until memory was freed after `generation`, `ns` nanoseconds at most. */
void lochi_waiting_sleep(uint64_t generation, uint64_t ns);

#endif
