/* SPDX-License-Identifier: MIT */
/* Waiting for a thread that cannot wake the one that waits: the fast paths only store a flag.
 *
 * A loop on sched_yield never ends if the thread that waits has a real-time priority and runs on the processor of the
 * thread that it waits for: a yield lets only threads of the same priority run. So a wait spins for a moment, yields
 * for a moment, and then sleeps, which lets every other thread run. The sleep doubles, up to 1 ms: a wait takes about
 * twice as long as needed at most, and ends no more than that millisecond late.
 *
 * No ordering comes from here. The caller's loop reads the flag with acquire, which pairs with the release of the
 * thread that clears it. */
#ifndef LOCHI_BACKOFF_H
#define LOCHI_BACKOFF_H

#define LOCHI_BACKOFF_AWAKE 64 /* turns before the first sleep */

/* Lets a moment pass. `*turn` starts at 0 for each wait and counts the calls. Not a cancellation point. */
void lochi_backoff(unsigned *turn);

/* Lets a moment pass in a wait whose end has to be noticed soon, such as one for a device: yields up to 1024 times, and
 * then sleeps for 20 µs at a time. `*turn` is as for lochi_backoff. */
void lochi_backoff_eager(unsigned *turn);

#endif
