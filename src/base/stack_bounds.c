/* SPDX-License-Identifier: MIT */
/* Reads /proc/self/maps, whose lines are "start-end rwxp offset device inode   name". The end of a thread's stack is
 * its control block (pthread_self), which the C library puts there; the first thread's stack is named "[stack]". */
#include "base/stack_bounds.h"
#include "kit/cancel.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define BOUNDS_PIECE 1024
/* The system keeps at least this much free below the first thread's stack. */
#define BOUNDS_GROWTH ((uintptr_t)128 << 20)

/* What was read of one line. */
typedef struct bounds_line {
    uintptr_t start, end;
    unsigned field; /* 0: start, 1: end, 2: before the name or the name itself, cut */
    char tail[8];   /* the last characters of the line */
} bounds_line;

static void bounds_take(bounds_line *line, char c)
{
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (line->field == 0 && digit >= 0)
        line->start = line->start << 4 | (uintptr_t)digit;
    else if (line->field == 1 && digit >= 0)
        line->end = line->end << 4 | (uintptr_t)digit;
    else if (line->field < 2)
        line->field++;
    memmove(line->tail, line->tail + 1, sizeof line->tail - 1);
    line->tail[sizeof line->tail - 1] = c;
}

/* Finds the line whose range has `address`. */
static bool bounds_find_line(int file, uintptr_t address, bounds_line *line)
{
    char text[BOUNDS_PIECE];
    *line = (bounds_line){0};
    for (;;) {
        ssize_t length;
        do
            length = read(file, text, sizeof text);
        while (length < 0 && errno == EINTR);
        if (length <= 0) return false;
        for (ssize_t i = 0; i < length; i++) {
            if (text[i] != '\n') {
                bounds_take(line, text[i]);
                continue;
            }
            if (address >= line->start && address < line->end) return true;
            *line = (bounds_line){0};
        }
    }
}

/* Returns how far the first thread's stack may grow. */
static uintptr_t bounds_growth(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur > BOUNDS_GROWTH) return BOUNDS_GROWTH;
    return (uintptr_t)limit.rlim_cur;
}

bool lochi_stack_bounds_find(uintptr_t sp, uintptr_t *low, uintptr_t *high)
{
    LOCHI_NOT_CANCELLED;
    const int before = errno;
    const int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    bounds_line line;
    bool is_found = file >= 0 && bounds_find_line(file, sp, &line);
    if (file >= 0) close(file);
    errno = before;
    if (!is_found) return false;
    const uintptr_t self = (uintptr_t)pthread_self();
    if (self > sp && self < line.end) { /* a stack of pthread_create: below the thread's control block */
        *low = line.start;
        *high = self & ~(sizeof(uintptr_t) - 1);
        return true;
    }
    if (memcmp(line.tail + 1, "[stack]", 7) != 0) return false;
    const uintptr_t growth = bounds_growth();
    *low = line.end - growth < line.start ? line.end - growth : line.start;
    *high = line.end;
    return true;
}
