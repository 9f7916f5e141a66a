/* SPDX-License-Identifier: MIT */
/* Decay: free memory of the pool goes back to the system when the program has not needed it for ten seconds.
 *
 * Needed is what was in use at some moment: every half second the most bytes in use since the last one are noted, and
 * free memory beyond the highest of the latest such figures goes back. So a program that allocates and frees the same
 * memory again and again keeps it, however much it is, and one that has passed a peak gives it back. Chains of the
 * shelves go back to their slabs each time: few blocks in them may hold many slabs.
 *
 * A thread does this, because a program that has freed all it had may call malloc no more. The thread exists only while
 * there is something to decay: a thread that has freed 16 MiB looks at the pool and starts it if more than DECAY_MIN
 * are free, and it ends when less is left. Where no thread can be had, free memory above DECAY_MOST goes back at once.
 * It has all signals blocked. A child of a fork has no such thread until it needs one.
 *
 * LOCH_MALLOC_DECAY is the time in seconds, 10 without it. With 0 there is never a thread. */
#ifndef FRONT_DECAY_H
#define FRONT_DECAY_H

#include <stddef.h>

#define DECAY_MIN ((size_t)32 << 20)   /* free memory that stays */
#define DECAY_MOST ((size_t)256 << 20) /* free memory that stays without a thread */

/* Reads the setting. Call it once, before other threads exist. */
void front_decay_start(void);

/* Notes that the calling thread has given `bytes` back to the pool. The caller must not be inside Loch. */
void front_decay_note(size_t bytes);

/* Forgets the thread, which a child of a fork does not have. */
void front_decay_end_fork(void);

#endif
