/* SPDX-License-Identifier: MIT */
/* Locks with ranks. A thread takes locks in rising rank only. Builds with assertions check that and stop at the
 * first breach, so that a possible deadlock is found before it happens. docs/architecture.md has the table of ranks
 * with the reasons. Every lock that was ever taken is in a list, so that a fork can take them all (base/fork.h). */
#ifndef LOCHI_LOCK_H
#define LOCHI_LOCK_H

#include "base/shared.h"
#include "base/lock_state.h"
#include <assert.h>
#include <time.h>

LOCHI_SHARED void lochi_lock_init(lochi_lock *lock, lochi_rank rank);
LOCHI_SHARED void lochi_lock_fini(lochi_lock *lock);
LOCHI_SHARED void lochi_lock_take(lochi_lock *lock);
/* Takes the lock if it is free. Returns false at once if another thread has it. It is the only way to take a lock of a
 * lower rank than one that the thread holds: a thread that does not wait blocks nothing. */
bool lochi_lock_try(lochi_lock *lock);
LOCHI_SHARED void lochi_lock_drop(lochi_lock *lock);

/* Makes a condition whose clock is CLOCK_MONOTONIC. Makes it again in the child of a fork: the threads that waited on
 * it are not there. */
LOCHI_SHARED void lochi_lock_init_condition(pthread_cond_t *condition);

/* Waits on a condition. The lock is dropped during the wait. */
LOCHI_SHARED void lochi_lock_wait(lochi_lock *lock, pthread_cond_t *condition);

/* Waits on a condition until `until` at the latest, in the condition's clock. The lock is dropped during the wait.
 * Returns false on timeout. */
LOCHI_SHARED bool lochi_lock_wait_until(lochi_lock *lock, pthread_cond_t *condition, const struct timespec *until);

/* Asserts that the calling thread holds the lock. First statement of every function that needs the lock held. */
static inline void lochi_lock_assert_held(const lochi_lock *lock)
{
    (void)lock;
    assert(lochi_lock_is_mine(lock));
}

#endif
