/* SPDX-License-Identifier: MIT */
/* The clock of the library, which the program can replace (loch/host.h). */
#include <loch/host.h>
#include <time.h>

static uint64_t clock_monotonic(void *user)
{
    (void)user;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static loch_clock *clock_function = clock_monotonic;
static void *clock_user;

void loch_host_set_clock(loch_clock *clock, void *user)
{
    clock_function = clock ? clock : clock_monotonic;
    clock_user = user;
}

uint64_t loch_host_now_ns(void)
{
    return clock_function(clock_user);
}
