/* SPDX-License-Identifier: MIT */
/* No call of Loch is a cancellation point: pthread_cancel takes effect before or behind a call, never inside, where locks
 * are held and lists are half changed. Whatever sleeps, reads, writes, loads a library, or calls a driver or a function
 * of the user holds cancellation off meanwhile. Taking a mutex is no cancellation point, so short ways pay nothing.
 * The functions of allocators, host allocators and clocks are called as they are; their headers forbid cancellation
 * points. */
#ifndef LOCHI_CANCEL_H
#define LOCHI_CANCEL_H

#include <pthread.h>

/* Holds cancellation of the calling thread off. Returns what lochi_cancel_restore takes. Calls nest. */
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

/* A declaration: holds cancellation off until the end of the block. */
#define LOCHI_NOT_CANCELLED                                                                                            \
    __attribute__((cleanup(lochi_cancel_restore), unused)) const int lochi_cancel_before = lochi_cancel_hold()

#endif
