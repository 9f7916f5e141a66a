/* SPDX-License-Identifier: MIT */
/* The address space that RLIMIT_AS leaves: the limit less the first number of /proc/self/statm, in pages. */
#include "base/space.h"
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t space_count_mapped(void)
{
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file) return 0;
    unsigned long long pages = 0;
    const int read = fscanf(file, "%llu", &pages);
    fclose(file);
    return read == 1 ? (size_t)pages * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

size_t lochi_address_room(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
    const size_t mapped = space_count_mapped();
    return limit.rlim_cur > mapped ? (size_t)limit.rlim_cur - mapped : 0;
}
