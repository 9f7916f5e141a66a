/* SPDX-License-Identifier: MIT */
/* One turn of a wait: a pause, a yield, or a sleep. */
#include "kit/backoff.h"
#include "kit/cancel.h"
#include "kit/hint.h"
#include <sched.h>
#include <time.h>

#define BACKOFF_SPINS 32
#define BACKOFF_NAP_NS 50000l
#define BACKOFF_NAP_MOST_NS 1000000l
#define BACKOFF_DOUBLINGS 5
#define BACKOFF_EAGER_AWAKE 1024 /* turns before the first sleep */
#define BACKOFF_EAGER_NAP_NS 20000l

static void backoff_nap(long ns)
{
    LOCHI_NOT_CANCELLED;
    const struct timespec nap = {.tv_nsec = ns};
    nanosleep(&nap, NULL);
}

LOCHI_RARE void lochi_backoff(unsigned *turn)
{
    const unsigned now = *turn;
    if (now < LOCHI_BACKOFF_AWAKE + BACKOFF_DOUBLINGS) ++*turn;
    if (now < BACKOFF_SPINS) {
        lochi_hint_pause();
    } else if (now < LOCHI_BACKOFF_AWAKE) {
        sched_yield();
    } else {
        const long ns = BACKOFF_NAP_NS << (now - LOCHI_BACKOFF_AWAKE);
        backoff_nap(ns < BACKOFF_NAP_MOST_NS ? ns : BACKOFF_NAP_MOST_NS);
    }
}

LOCHI_RARE void lochi_backoff_eager(unsigned *turn)
{
    const unsigned now = *turn;
    if (now < BACKOFF_EAGER_AWAKE) ++*turn;
    if (now < BACKOFF_SPINS)
        lochi_hint_pause();
    else if (now < BACKOFF_EAGER_AWAKE)
        sched_yield();
    else
        backoff_nap(BACKOFF_EAGER_NAP_NS);
}
