/* SPDX-License-Identifier: MIT */
/* The clock of the library (clock.c). Reading it is public: loch_host_now_ns. */
#ifndef LOCHI_CLOCK_H
#define LOCHI_CLOCK_H

#include <stdint.h>

/* Returns the time since the start of the process, in nanoseconds; 0 if the system does not tell. */
uint64_t lochi_clock_age_ns(void);

/* Returns a time in nanoseconds that never goes backwards. Called from any thread; has no cancellation point. */
typedef uint64_t lochi_clock(void *user);

/* Replaces the clock for measuring and waiting; NULL restores the monotonic clock of the system. For tests: no other
 * thread may be inside the library. */
void lochi_clock_set(lochi_clock *clock, void *user);

#endif
