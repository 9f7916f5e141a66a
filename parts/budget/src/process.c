/* SPDX-License-Identifier: MIT */
/* Processes are told apart by pid and start time, from /proc/PID/stat.
 *
 * A process that was killed closes its files, among them those of the device, and becomes a zombie afterwards. Threads
 * share the files, and the last of them closes them: so a zombie whose other threads still end is not dead yet.
 *
 * A process that runs another program (exec) has given its memory up, and keeps pid and start time. */
#include "process.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct process_stat {
    char state;
    unsigned long long flags, threads, start;
} process_stat;

#define PROCESS_EXITING 4 /* of the flags: PF_EXITING of the kernel */

/* Reads the numbers behind the name of the program, which may contain blanks and brackets. */
static bool process_parse(char *text, process_stat *out)
{
    char *at = strrchr(text, ')');
    if (!at || at[1] != ' ' || !at[2]) return false;
    out->state = at[2];
    at += 3;
    for (int field = 4; field <= 22; field++) {
        char *end;
        const unsigned long long value = strtoull(at, &end, 10);
        if (end == at) return false;
        if (field == 9) out->flags = value;
        if (field == 20) out->threads = value;
        if (field == 22) out->start = value;
        at = end;
    }
    return true;
}

/* Returns 0, or why the process cannot be read. */
static int process_read(int64_t pid, process_stat *out)
{
    char path[48], text[1024];
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return errno;
    const ssize_t length = read(fd, text, sizeof text - 1);
    const int error = errno;
    close(fd);
    if (length < 0) return error; /* ESRCH: it ended meanwhile */
    text[length] = '\0';
    return process_parse(text, out) ? 0 : EIO;
}

budget_process lochi_budget_process_self(void)
{
    static _Atomic uint64_t image; /* the same for all budgets of the process */
    budget_process self = {.pid = getpid()};
    uint64_t none = 0, fresh = 0;
    if (getrandom(&fresh, sizeof fresh, GRND_NONBLOCK) != (ssize_t)sizeof fresh || !fresh) fresh = (uintptr_t)&self | 1;
    if (atomic_compare_exchange_strong(&image, &none, fresh)) none = fresh;
    self.image = none;
    process_stat stat_of = {0};
    struct stat space;
    if (process_read(self.pid, &stat_of) == 0) self.start = stat_of.start;
    if (stat("/proc/self/ns/pid", &space) == 0) self.space = space.st_ino;
    return self;
}

budget_life lochi_budget_process_look(const budget_process *self, const budget_process *other)
{
    process_stat now = {0};
    if (!self->space || self->space != other->space || !self->start || !other->start) return BUDGET_UNKNOWN;
    if (other->pid <= 0 || other->pid != (pid_t)other->pid) return BUDGET_DEAD;
    const int error = process_read(other->pid, &now);
    if (error == ENOENT || error == ESRCH)
        return kill((pid_t)other->pid, 0) != 0 && errno == ESRCH ? BUDGET_DEAD : BUDGET_UNKNOWN;
    if (error) return BUDGET_UNKNOWN;
    if (now.start != other->start) return BUDGET_DEAD;
    if ((now.state == 'Z' || now.state == 'X') && now.threads <= 1) return BUDGET_DEAD;
    if (other->pid == self->pid) return other->image == self->image ? BUDGET_ALIVE : BUDGET_DEAD;
    return now.flags & PROCESS_EXITING ? BUDGET_ALIVE : BUDGET_RUNNING;
}
