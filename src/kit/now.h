/* SPDX-License-Identifier: MIT */
/* The time of the system since an arbitrary start, for deadlines that a clock of the program must not change. */
#ifndef LOCHI_NOW_H
#define LOCHI_NOW_H

#include <stdint.h>
#include <time.h>

static inline uint64_t lochi_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

#endif
