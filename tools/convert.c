/* SPDX-License-Identifier: MIT */
/* `loch convert`: writes a recording in another format. */
#include "recording.h"
#include "tool.h"

#include <string.h>

typedef struct convert_format {
    const char *name;
    loch_recording_format format;
} convert_format;

static const convert_format convert_formats[] = {
    {"text", LOCH_RECORDING_TEXT},     {"binary", LOCH_RECORDING_BINARY}, {"torch", LOCH_RECORDING_TORCH},
    {"chrome", LOCH_RECORDING_CHROME}, {"folded", LOCH_RECORDING_FOLDED}, {"metrics", LOCH_RECORDING_METRICS}};

static loch_recording_format convert_find(const char *name)
{
    for (size_t i = 0; name && i < sizeof convert_formats / sizeof *convert_formats; i++)
        if (!strcmp(convert_formats[i].name, name)) return convert_formats[i].format;
    return LOCH_RECORDING_AUTO;
}

static int convert_write(const loch_recording *recording, const char *path, loch_recording_format format)
{
    tool_progress progress = {.label = "writing"};
    const loch_recording_options options = {
        .size = sizeof options, .format = format, .progress = tool_progress_part, .user = &progress};
    const loch_status status = loch_recording_save(recording, path, &options);
    tool_progress_end(&progress);
    return status == LOCH_OK ? TOOL_DONE : tool_fail_status(status);
}

static int convert_run(int count, char **arguments)
{
    tool_options options = {"convert", count, arguments, 0};
    const char *argument, *value, *allocator = NULL, *paths[2] = {NULL, NULL};
    size_t paths_count = 0;
    loch_recording_format format = LOCH_RECORDING_AUTO;
    while ((argument = tool_next(&options))) {
        if (tool_option_value(&options, argument, "--format", &value)) {
            format = convert_find(value);
            if (format == LOCH_RECORDING_AUTO)
                return tool_misuse("convert", "--format needs text, binary, torch, chrome, folded or metrics");
        } else if (tool_option_value(&options, argument, "--allocator", &allocator)) {
            if (!allocator) return tool_misuse("convert", "--allocator needs an allocator's name");
        } else if ((*argument == '-' && argument[1]) || paths_count == 2) {
            return tool_misuse("convert", "\"%s\" is not understood", argument);
        } else {
            paths[paths_count++] = argument;
        }
    }
    if (paths_count != 2) return tool_misuse("convert", "a recording and the file to write are needed");
    loch_recording *recording;
    int code = tool_recording_load(paths[0], allocator, &recording);
    if (code != TOOL_DONE) return code;
    code = convert_write(recording, paths[1], format);
    loch_recording_destroy(recording);
    return code;
}

const tool_command tool_convert = {
    "convert",
    "writes a recording in another format",
    "Usage: loch convert IN OUT [--format FORMAT] [--allocator NAME]\n\n"
    "Reads a recording and writes it in another format. IN is a trace, a file of the recorder or a memory snapshot\n"
    "of PyTorch, plain or compressed, or - for standard input. The ending of OUT chooses the format; .gz behind it\n"
    "compresses. OUT is - for standard output.\n\n"
    "  --format FORMAT    text (.trace), binary (.loch), torch (.pickle), chrome (.json),\n"
    "                     folded (.folded) or metrics (.prom)\n"
    "  --allocator NAME   only blocks of this allocator\n",
    .run = convert_run,
};
