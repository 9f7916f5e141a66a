/* SPDX-License-Identifier: MIT */
/* A library that scripts/gate preloads, so that counts of instructions repeat on every machine. The pool weighs its
 * time against its memory, so time has to repeat: each reading of the clock moves it on by one millisecond. The sizes
 * of its tables follow the memory of the machine: files that tell it say 64 GiB. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define STEP_NS 1000000

int clock_gettime(clockid_t clock, struct timespec *out)
{
    static long long passed_ns;
    (void)clock;
    const long long now_ns = __atomic_add_fetch(&passed_ns, STEP_NS, __ATOMIC_RELAXED);
    out->tv_sec = now_ns / 1000000000;
    out->tv_nsec = now_ns % 1000000000;
    return 0;
}

FILE *fopen(const char *path, const char *mode)
{
    static char memory[] = "MemTotal: 67108864 kB\nMemFree: 67108864 kB\nMemAvailable: 67108864 kB\n", groups[] = "\n";
    FILE *(*real)(const char *, const char *);
    if (!strcmp(path, "/proc/meminfo")) return fmemopen(memory, sizeof memory - 1, "r");
    if (!strcmp(path, "/proc/self/cgroup")) return fmemopen(groups, sizeof groups - 1, "r");
    *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    return real ? real(path, mode) : NULL;
}
