/* SPDX-License-Identifier: MIT */
/* Cancellation of threads. No function of Loch is a cancellation point, so the parts disable cancellation while they
 * hold a lock or own something and call what is one: files, drivers, libraries that are loaded. */
#ifndef LOCH_COMMON_CANCEL_H
#define LOCH_COMMON_CANCEL_H

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
