/* SPDX-License-Identifier: MIT */
/* The clock of the library, which tests can replace. */
#include "base/clock.h"
#include "base/system_file.h"
#include "kit/now.h"
#include <loch/host.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CLOCK_START_FIELD 20 /* of /proc/self/stat, counted behind the name of the program */

static uint64_t clock_monotonic(void *user)
{
    (void)user;
    return lochi_now_ns();
}

static lochi_clock *clock_function = clock_monotonic;
static void *clock_user;

void lochi_clock_set(lochi_clock *clock, void *user)
{
    clock_function = clock ? clock : clock_monotonic;
    clock_user = user;
}

uint64_t loch_host_now_ns(void)
{
    return clock_function(clock_user);
}

/* Reads the start of the process from /proc/self/stat, in ticks since the start of the system; 0 on failure. */
static uint64_t clock_read_start(void)
{
    char text[1024];
    lochi_system_file_read("/proc/self/stat", text, sizeof text);
    const char *field = strrchr(text, ')'); /* the name may contain anything */
    for (int i = 0; field && i < CLOCK_START_FIELD; i++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field, NULL, 10) : 0;
}

uint64_t lochi_clock_age_ns(void)
{
    const uint64_t start = clock_read_start();
    const long ticks = sysconf(_SC_CLK_TCK);
    struct timespec now;
    if (!start || ticks <= 0 || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
    const uint64_t now_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
    const uint64_t start_ns = start * (1000000000u / (uint64_t)ticks);
    return now_ns > start_ns ? now_ns - start_ns : 0;
}
