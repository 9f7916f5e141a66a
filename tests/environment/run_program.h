/* SPDX-License-Identifier: MIT */
/* Runs a program and reads what it writes to its standard error. */
#ifndef LOCH_TEST_RUN_PROGRAM_H
#define LOCH_TEST_RUN_PROGRAM_H

#include "test.h"
#include <sys/wait.h>
#include <unistd.h>

/* The exit code, 256 and the signal, or 127 when it cannot be run. */
__attribute__((unused)) static int run_program(char *const *arguments, char *text, size_t bytes)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (!child) {
        dup2(ends[1], 2);
        close(ends[0]);
        close(ends[1]);
        execvp(arguments[0], arguments);
        _exit(127);
    }
    close(ends[1]);
    size_t length = 0;
    char rest[4096] = "";
    for (;;) {
        const bool has_room = length + 1 < bytes;
        const ssize_t got = read(ends[0], has_room ? text + length : rest, has_room ? bytes - 1 - length : sizeof rest);
        if (got <= 0) break;
        if (has_room) length += (size_t)got;
    }
    text[length] = '\0';
    close(ends[0]);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

#endif
