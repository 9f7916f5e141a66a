/* SPDX-License-Identifier: MIT */
/* The `loch` program: finds the command and runs it. */
#include "tool.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const tool_command *const commands[] = {&tool_info,    &tool_replay, &tool_report, &tool_stats, &tool_diff,
                                               &tool_convert, &tool_bench,  &tool_top,    &tool_plan,  &tool_fleet};

#define COMMANDS_COUNT (sizeof commands / sizeof *commands)

static void main_print_help(void)
{
    puts("loch: memory for AI engines\n\n"
         "Usage: loch COMMAND [OPTION...]\n"
         "       loch help [COMMAND], loch COMMAND --help\n"
         "       loch version, loch --version\n\n"
         "Commands:");
    for (size_t i = 0; i < COMMANDS_COUNT; i++)
        printf("  %-8s %s\n", commands[i]->name, commands[i]->summary);
    puts("\nWhat follows -- is not an option.");
    puts("Exit codes: 0 done, 1 failed, 2 called wrongly; the last two with one line on standard error.");
}

static const tool_command *main_find(const char *name)
{
    for (size_t i = 0; i < COMMANDS_COUNT; i++)
        if (!strcmp(name, commands[i]->name)) return commands[i];
    return NULL;
}

static bool main_is_help(const char *argument)
{
    return !strcmp(argument, "--help") || !strcmp(argument, "-h");
}

/* `loch help [COMMAND]` */
static int main_help(int count, char **arguments)
{
    const tool_command *command = count ? main_find(arguments[0]) : NULL;
    if (count && !command) return tool_misuse("", "there is no command \"%s\"", arguments[0]);
    if (command)
        fputs(command->help, stdout);
    else
        main_print_help();
    return TOOL_DONE;
}

static loch_status main_warn(const char *variable, const char *nearest, void *user)
{
    (void)user;
    fprintf(stderr, "loch: nothing reads %s%s%s%s\n", variable, nearest ? ": did you mean " : "",
            nearest ? nearest : "", nearest ? "?" : "");
    return LOCH_OK;
}

/* Fails for an option whose variable cannot be parsed, even if the command does not read the option. */
static loch_status main_read_option(const loch_option *option, void *user)
{
    char value[LOCH_OPTION_VALUE_MAX];
    (void)user;
    return loch_option_get(option->name, value);
}

/* Ends the program quietly when the reader of its output has gone, as in `loch stats FILE | head`, even if its parent
 * ignores the signal. */
static void main_end_with_pipe(void)
{
    sigset_t pipe_only;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_UNBLOCK, &pipe_only, NULL);
}

/* Runs a command. What follows "--" is never an option: a path that starts with "-" gets "./" before it. */
static int main_run_operands(const tool_command *command, int count, char **arguments, int end)
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

static int main_run(const tool_command *command, int count, char **arguments)
{
    int end = 0;
    for (; end < count && strcmp(arguments[end], "--") != 0; end++)
        if (main_is_help(arguments[end])) {
            fputs(command->help, stdout);
            return TOOL_DONE;
        }
    loch_status status = loch_option_walk_unknown(main_warn, NULL);
    if (status == LOCH_OK && command != &tool_info)
        status = loch_option_walk(main_read_option, NULL); /* info itself shows what is wrong */
    if (status != LOCH_OK) return tool_fail_status(status);
    return end < count ? main_run_operands(command, count, arguments, end) : command->run(count, arguments);
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : NULL;
    main_end_with_pipe();
    if (!name) {
        main_print_help();
        return TOOL_MISUSED;
    }
    const tool_command *command = main_find(name);
    int code = TOOL_DONE;
    if (command)
        code = main_run(command, count - 2, arguments + 2);
    else if (main_is_help(name))
        main_print_help();
    else if (!strcmp(name, "help"))
        code = main_help(count - 2, arguments + 2);
    else if (!strcmp(name, "complete"))
        code = tool_complete(commands, COMMANDS_COUNT, count - 2, arguments + 2);
    else if (!strcmp(name, "--version") || !strcmp(name, "version"))
        printf("loch %s\n", loch_version());
    else
        return tool_misuse("", "there is no command \"%s\"", name);
    return fflush(stdout) == 0 ? code : tool_fail("standard output could not be written");
}
