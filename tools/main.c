/* SPDX-License-Identifier: MIT */
/* The `loch` program: finds the command and runs it. */
#include "tool.h"
#include <stdio.h>
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
    puts("\nExit codes: 0 done, 1 failed, 2 called wrongly; the last two with one line on standard error.");
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

static int main_run(const tool_command *command, int count, char **arguments)
{
    for (int i = 0; i < count; i++)
        if (main_is_help(arguments[i])) {
            fputs(command->help, stdout);
            return TOOL_DONE;
        }
    loch_status status = loch_option_walk_unknown(main_warn, NULL);
    if (status == LOCH_OK && command != &tool_info)
        status = loch_option_walk(main_read_option, NULL); /* info itself shows what is wrong */
    return status == LOCH_OK ? command->run(count, arguments) : tool_fail_status(status);
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : NULL;
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
