/* SPDX-License-Identifier: MIT */
/* The clock of the library (clock.c). Reading it is public: loch_host_now_ns. */
#ifndef LOCHI_CLOCK_H
#define LOCHI_CLOCK_H

#include <stdint.h>

/* Returns the time since the start of the process, in nanoseconds; 0 if the system does not tell. */
uint64_t lochi_clock_age_ns(void);

#endif
