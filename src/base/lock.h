/* SPDX-License-Identifier: MIT */
/* Locks with ranks. A thread takes locks in rising rank only; builds with assertions check it and stop at the first
 * breach, so that a deadlock cannot hide until it happens. docs/architecture.md has the same table with the reasons. Every
 * lock that was ever taken is in a list, so that a fork takes them all (base/fork.h). */
#ifndef LOCHI_LOCK_H
#define LOCHI_LOCK_H

#include "base/lock_state.h"
#include <assert.h>
#include <time.h>

void lochi_lock_init(lochi_lock *lock, lochi_rank rank);
void lochi_lock_fini(lochi_lock *lock);
void lochi_lock_take(lochi_lock *lock);
void lochi_lock_drop(lochi_lock *lock);

/* Sleeps on a condition; the lock is dropped meanwhile. */
void lochi_lock_wait(lochi_lock *lock, pthread_cond_t *condition);

/* Sleeps on a condition until `until` of the condition's clock at most; the lock is dropped meanwhile. Returns false when the
 * time has come. */
bool lochi_lock_wait_until(lochi_lock *lock, pthread_cond_t *condition, const struct timespec *until);

/* Stops a build with assertions when the calling thread does not hold the lock. Opens every function that relies on one. */
static inline void lochi_lock_assert_held(const lochi_lock *lock)
{
    (void)lock;
    assert(lochi_lock_is_mine(lock));
}

#endif
