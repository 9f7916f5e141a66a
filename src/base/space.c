/* SPDX-License-Identifier: MIT */
/* The address space that RLIMIT_AS leaves: the limit less the first number of /proc/self/statm, in pages. */
#include "base/space.h"
#include "base/system_file.h"
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static size_t space_count_mapped(void)
{
    char text[128];
    lochi_system_file_read("/proc/self/statm", text, sizeof text);
    return (size_t)strtoull(text, NULL, 10) * (size_t)sysconf(_SC_PAGESIZE);
}

size_t lochi_address_room(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return SIZE_MAX;
    const size_t mapped = space_count_mapped();
    return limit.rlim_cur > mapped ? (size_t)limit.rlim_cur - mapped : 0;
}
