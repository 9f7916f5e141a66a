/* SPDX-License-Identifier: MIT */
/* Threads that wait for memory, and functions that are asked for it. */
#ifndef LOCHI_WAITING_H
#define LOCHI_WAITING_H

#include "memory/allocator_state.h"

/* The longest sleep of a waiter that nobody wakes; constant but for tests. */
extern uint64_t lochi_retry_nap_ns;

/* Wakes everybody who waits for memory. */
void lochi_retry_wake(void);

/* Frees the list of pressure functions of an allocator that ends. */
void lochi_retry_fini(loch_allocator *allocator);

/* A call under way, on its thread's stack: for the child of a fork, which does not have that thread. */
typedef struct waiting_call {
    struct waiting_call *next, **link;
    uint64_t thread;
    loch_allocator *allocator; /* that it waits for, with all that it wraps; NULL: it is in a pressure function */
    lochi_pressure *asked;
} waiting_call;

/* Enters a call in the list of those under way. */
void lochi_waiting_note(waiting_call *call);
/* Takes a call out of that list. */
void lochi_waiting_forget(const waiting_call *call);

/* Has frees of an allocator and of all that it wraps wake the calling thread, until lochi_waiting_end. */
void lochi_waiting_begin(loch_allocator *allocator);
void lochi_waiting_end(loch_allocator *allocator);

/* Returns the number of the last free that woke anybody. */
uint64_t lochi_waiting_get_generation(void);
/* Sleeps until something was freed after `generation`, or for `ns` at most. */
void lochi_waiting_sleep(uint64_t generation, uint64_t ns);

#endif
