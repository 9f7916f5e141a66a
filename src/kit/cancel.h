/* SPDX-License-Identifier: MIT */
/* Cancellation of threads. No function of Loch is a cancellation point: pthread_cancel takes effect before or after a
 * call, never during it, where locks are held and lists are half changed.
 *
 * Code that sleeps, reads, writes, loads a library, or calls a driver or a function of the user disables
 * cancellation meanwhile. Taking a mutex is not a cancellation point, so fast paths pay nothing. Functions of
 * allocators, host allocators and clocks are called without this protection: their headers forbid cancellation
 * points. */
#ifndef LOCHI_CANCEL_H
#define LOCHI_CANCEL_H

#include <pthread.h>

/* Disables cancellation of the calling thread. Pass the result to lochi_cancel_restore. Calls nest. */
static inline int lochi_cancel_hold(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void lochi_cancel_restore(const int *before)
{
    int held;
    pthread_setcancelstate(*before, &held);
}

/* Declares a variable that disables cancellation until the end of the block. */
#define LOCHI_NOT_CANCELLED                                                                                            \
    __attribute__((cleanup(lochi_cancel_restore), unused)) const int lochi_cancel_before = lochi_cancel_hold()

#endif
