/* SPDX-License-Identifier: MIT */
/* `loch diff`: prints what differs between two recordings. */
#include "recording.h"
#include "tool.h"

#include <string.h>

static int diff_run(int count, char **arguments)
{
    tool_options options = {"diff", count, arguments, 0};
    const char *argument, *paths[2] = {NULL, NULL};
    size_t paths_count = 0;
    loch_format format = LOCH_FORMAT_TEXT;
    while ((argument = tool_next(&options))) {
        if (!strcmp(argument, "--json"))
            format = LOCH_FORMAT_JSON;
        else if ((*argument == '-' && argument[1]) || paths_count == 2)
            return tool_misuse("diff", "\"%s\" is not understood", argument);
        else
            paths[paths_count++] = argument;
    }
    if (paths_count != 2) return tool_misuse("diff", "two recordings are needed");
    loch_recording *before = NULL, *after = NULL;
    int code = tool_recording_load(paths[0], NULL, &before);
    if (code == TOOL_DONE) code = tool_recording_load(paths[1], NULL, &after);
    if (code == TOOL_DONE) code = tool_recording_print(before, after, format);
    loch_recording_destroy(before);
    loch_recording_destroy(after);
    return code;
}

const tool_command tool_diff = {
    "diff",
    "prints what differs between two recordings",
    "Usage: loch diff BEFORE AFTER [--json]\n\n"
    "Prints what differs between two recordings: peaks, fragmentation, what was live at the peaks by tag and call\n"
    "site, and driver calls. The largest differences come first.\n\n"
    "  --json   exact figures as one JSON object\n",
    .run = diff_run,
};
