/* SPDX-License-Identifier: MIT */
/* The gate of the fast path (fast.h): a count. While it is not 0, every call takes the slow path. */
#ifndef LOCHI_POOL_GATE_H
#define LOCHI_POOL_GATE_H

#include "memory/pool/state/state.h"

/* Closes the gate, and returns when no thread is in its cache. The lock is held. */
void lochi_pool_stop(lochi_pool *pool);
/* Closes the gate, and returns when no thread is in its cache. Both locks are held; the heavy fence, which takes
 * microseconds, is crossed outside the pool's lock (outside.h). */
void lochi_pool_stop_outside(lochi_pool *pool);
/* Closes the gate, and returns when no thread is in its cache. Takes the lock. */
void lochi_pool_shut(lochi_pool *pool);
/* Opens the gate that lochi_pool_stop or lochi_pool_shut has closed. */
void lochi_pool_go(lochi_pool *pool);

/* Closes the gate for a thread that waits for memory of the pool. Such threads are counted, so that the child of a
 * fork can undo the counts of threads that it does not have. Takes the lock. */
void lochi_pool_shut_waiting(lochi_pool *pool);
/* Undoes lochi_pool_shut_waiting. Takes the lock. */
void lochi_pool_go_waiting(lochi_pool *pool);
/* Removes the counts of all waiting threads, in the child of a fork. */
void lochi_pool_forget_waiters(lochi_pool *pool);
/* Counts the calling thread as waiting again, in the child of a fork. */
void lochi_pool_note_waiter(lochi_pool *pool);

/* Waits until no thread is in its cache. The caller has closed the gate and crossed the heavy fence. */
void lochi_pool_await(lochi_pool *pool);
/* Clears the `busy` marks of threads that the child of a fork does not have. */
void lochi_pool_leave_caches(lochi_pool *pool);

#endif
