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
    puts("\nWhat follows -- is not an option.");
    puts("Exit codes: 0 done, 1 failed, 2 called wrongly; the last two with one line on standard error.");
}

static const tool_command *main_find(const char *name)
{
    for (size_t i = 0; i < COMMANDS_COUNT; i++)
        if (!strcmp(name, commands[i]->name)) return commands[i];
    return NULL;
}

/* `loch help [COMMAND]` */
static int main_help(int count, char **arguments)
{
    if (count && !strcmp(arguments[0], "--")) count--, arguments++;
    const tool_command *command = count ? main_find(arguments[0]) : NULL;
    if (count && !command) return tool_misuse("", "there is no command \"%s\"", arguments[0]);
    if (command)
        fputs(command->help, stdout);
    else
        main_print_help();
    return TOOL_DONE;
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : NULL;
    tool_end_with_pipe();
    if (!name) {
        main_print_help();
        return TOOL_MISUSED;
    }
    const tool_command *command = main_find(name);
    int code = TOOL_DONE;
    if (command)
        code = tool_run(command, count - 2, arguments + 2);
    else if (tool_is_help(name))
        main_print_help();
    else if (!strcmp(name, "help"))
        code = main_help(count - 2, arguments + 2);
    else if (!strcmp(name, "complete"))
        code = tool_complete(commands, COMMANDS_COUNT, count - 2, arguments + 2);
    else if (!strcmp(name, "--version") || !strcmp(name, "version"))
        printf("loch %s\n", loch_version());
    else
        return tool_misuse("", "there is no command \"%s\"", name);
    return tool_end(code);
}
