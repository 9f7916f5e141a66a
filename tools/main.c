/* SPDX-License-Identifier: MIT */
/* The `loch` program: finds the command and runs it. */
#include "tool.h"
#include <stdio.h>
#include <string.h>

static const tool_command *const commands[] = {&tool_info, &tool_replay, &tool_bench};

static void main_print_help(void)
{
    puts("loch: memory for AI engines\n\n"
         "Usage: loch COMMAND [OPTION...]\n"
         "       loch COMMAND --help\n"
         "       loch --version\n\n"
         "Commands:");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        printf("  %-8s %s\n", commands[i]->name, commands[i]->summary);
}

int main(int count, char **arguments)
{
    const char *name = count > 1 ? arguments[1] : NULL;
    if (!name) {
        main_print_help();
        return TOOL_MISUSED;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        main_print_help();
        return TOOL_DONE;
    }
    if (!strcmp(name, "--version")) {
        printf("loch %s\n", loch_version());
        return TOOL_DONE;
    }
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (strcmp(name, commands[i]->name) != 0) continue;
        if (count > 2 && (!strcmp(arguments[2], "--help") || !strcmp(arguments[2], "-h"))) {
            fputs(commands[i]->help, stdout);
            return TOOL_DONE;
        }
        const int code = commands[i]->run(count - 2, arguments + 2);
        return fflush(stdout) == 0 ? code : tool_fail("standard output could not be written");
    }
    return tool_misuse("", "there is no command \"%s\"", name);
}
