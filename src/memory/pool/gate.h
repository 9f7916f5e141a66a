/* SPDX-License-Identifier: MIT */
/* The gate to the short ways (quick.h): a count; while it is not 0 every call takes the long way. */
#ifndef LOCHI_POOL_GATE_H
#define LOCHI_POOL_GATE_H

#include "memory/pool/state.h"

/* Closes the gate, and returns when nobody is in a cache. */
void lochi_pool_stop(lochi_pool *pool);
/* Closes the gate likewise. Takes the lock. */
void lochi_pool_shut(lochi_pool *pool);
/* Opens the gate that lochi_pool_stop or lochi_pool_shut has closed. */
void lochi_pool_go(lochi_pool *pool);

/* Closes the gate for a thread that waits for memory of the pool. Such threads are counted, so that the child of a fork can undo
 * what others began. Takes the lock. */
void lochi_pool_shut_waiting(lochi_pool *pool);
/* Undoes lochi_pool_shut_waiting. Takes the lock. */
void lochi_pool_go_waiting(lochi_pool *pool);
/* Forgets, in the child of a fork, all threads that waited. */
void lochi_pool_forget_waiters(lochi_pool *pool);
/* Counts, in the child of a fork, the calling thread in again. */
void lochi_pool_note_waiter(lochi_pool *pool);

/* Waits until nobody is in a cache. The gate was closed, and the heavy fence crossed. */
void lochi_pool_await(lochi_pool *pool);
/* Forgets, in the child of a fork, that other threads were in their caches. */
void lochi_pool_leave_caches(lochi_pool *pool);

#endif
