/* SPDX-License-Identifier: MIT */
/* Runs one command: help, unknown variables, what follows "--", and the end of the output. */
#include "tool.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool tool_is_help(const char *argument)
{
    return !strcmp(argument, "--help") || !strcmp(argument, "-h");
}

static loch_status run_warn(const char *variable, const char *nearest, void *user)
{
    (void)user;
    fprintf(stderr, "%s: nothing reads %s%s%s%s\n", tool_program, variable, nearest ? ": did you mean " : "",
            nearest ? nearest : "", nearest ? "?" : "");
    return LOCH_OK;
}

/* Fails for an option whose variable cannot be parsed, even if the command does not read the option. */
static loch_status run_read_option(const loch_option *option, void *user)
{
    char value[LOCH_OPTION_VALUE_MAX];
    (void)user;
    return loch_option_get(option->name, value);
}

void tool_end_with_pipe(void)
{
    sigset_t pipe_only;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &pipe_only, NULL);
}

/* Runs a command. What follows "--" is never an option: a path that starts with "-" gets "./" before it. */
static int run_operands(const tool_command *command, int count, char **arguments, int end)
{
    char **all = calloc((size_t)count, sizeof *all); /* one place is left: a NULL at the end */
    bool is_good = all != NULL;
    for (int i = 0; is_good && i + 1 < count; i++) {
        const char *from = arguments[i < end ? i : i + 1];
        all[i] = malloc(strlen(from) + sizeof "./");
        is_good = all[i] != NULL;
        if (is_good) sprintf(all[i], "%s%s", i >= end && *from == '-' && from[1] ? "./" : "", from);
    }
    const int code = is_good ? command->run(count - 1, all) : tool_fail("no memory for the arguments");
    for (int i = 0; all && i < count; i++)
        free(all[i]);
    free(all);
    return code;
}

int tool_run(const tool_command *command, int count, char **arguments)
{
    int end = 0;
    for (; end < count && strcmp(arguments[end], "--") != 0; end++)
        if (tool_is_help(arguments[end])) {
            fputs(command->help, stdout);
            return TOOL_DONE;
        }
    loch_status status = loch_option_walk_unknown(run_warn, NULL);
    if (status == LOCH_OK && !command->shows_options) status = loch_option_walk(run_read_option, NULL);
    if (status != LOCH_OK) return tool_fail_status(status);
    return end < count ? run_operands(command, count, arguments, end) : command->run(count, arguments);
}

int tool_end(int code)
{
    return fflush(stdout) == 0 ? code : tool_fail("standard output could not be written");
}
