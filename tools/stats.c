/* SPDX-License-Identifier: MIT */
/* `loch stats`: prints the figures of a recording. */
#include "recording.h"
#include "tool.h"

#include <string.h>

static int stats_run(int count, char **arguments)
{
    tool_options options = {"stats", count, arguments, 0};
    const char *argument, *path = NULL, *allocator = NULL;
    loch_format format = LOCH_FORMAT_TEXT;
    while ((argument = tool_next(&options))) {
        if (!strcmp(argument, "--json")) {
            format = LOCH_FORMAT_JSON;
        } else if (tool_option_value(&options, argument, "--allocator", &allocator)) {
            if (!allocator) return tool_misuse("stats", "--allocator needs an allocator's name");
        } else if ((*argument == '-' && argument[1]) || path) {
            return tool_misuse("stats", "\"%s\" is not understood", argument);
        } else {
            path = argument;
        }
    }
    if (!path) return tool_misuse("stats", "a recording is needed");
    loch_recording *recording;
    int code = tool_recording_load(path, allocator, &recording);
    if (code != TOOL_DONE) return code;
    code = tool_recording_print(recording, NULL, format);
    loch_recording_destroy(recording);
    return code;
}

const tool_command tool_stats = {
    "stats",
    "prints what a recording says: peaks, tags, call sites, leaks",
    "Usage: loch stats FILE [--allocator NAME] [--json]\n\n"
    "Prints what a recording says: the peak and what was live then, by tag and call site; what is live at the\n"
    "end; fragmentation and driver calls where they are recorded; lifetimes and sizes of blocks.\n"
    "FILE is a trace, a file of the recorder, a snapshot of Loch or a memory snapshot of PyTorch, plain or\n"
    "compressed, or - for standard input.\n\n"
    "  --allocator NAME   only blocks of this allocator\n"
    "  --json             exact figures as one JSON object\n",
    .run = stats_run,
};
