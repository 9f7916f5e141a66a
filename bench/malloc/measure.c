/* SPDX-License-Identifier: MIT */
/* Runs a command and writes its user and system time in microseconds and its peak memory in KiB to a file. The peak of
 * a process is at least that of the process that started it, so the starter has to be small.
 *
 *     measure FILE COMMAND [ARGUMENT...]
 *
 * LD_PRELOAD of the command is taken from the variable MEASURE_PRELOAD. Signals TERM and INT are for the command. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t measure_child;

static void measure_pass(int number)
{
    kill(measure_child, number);
}

static long measure_us(struct timeval time)
{
    return time.tv_sec * 1000000 + time.tv_usec;
}

int main(int count, char **arguments)
{
    if (count < 3) return 2;
    measure_child = fork();
    if (measure_child < 0) return 2;
    if (measure_child == 0) {
        const char *preload = getenv("MEASURE_PRELOAD");
        if (preload && *preload) setenv("LD_PRELOAD", preload, 1);
        execvp(arguments[2], arguments + 2);
        perror(arguments[2]);
        _exit(127);
    }
    signal(SIGTERM, measure_pass);
    signal(SIGINT, measure_pass);
    int status;
    struct rusage usage;
    while (wait4(measure_child, &status, 0, &usage) < 0)
        ;
    FILE *out = fopen(arguments[1], "w");
    if (!out) return 2;
    fprintf(out, "%ld %ld %ld\n", measure_us(usage.ru_utime), measure_us(usage.ru_stime), usage.ru_maxrss);
    if (fclose(out) != 0) return 2;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
