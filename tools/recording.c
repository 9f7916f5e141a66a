/* SPDX-License-Identifier: MIT */
#include "recording.h"
#include "color.h"
#include "tool.h"

#include <stdlib.h>

#define RECORDING_PAGE_BYTES ((size_t)64 << 10) /* first try */

int tool_recording_load(const char *path, const char *allocator, loch_recording **out)
{
    tool_progress progress = {.label = "reading"};
    const loch_recording_options options = {
        .size = sizeof options, .progress = tool_progress_part, .user = &progress, .allocator = allocator};
    const loch_status status = loch_recording_load(path, &options, out);
    tool_progress_end(&progress);
    return status == LOCH_OK ? TOOL_DONE : tool_fail_status(status);
}

static loch_status recording_print(const loch_recording *recording, const loch_recording *after, loch_format format,
                                   char *text, size_t bytes, size_t *length)
{
    return after ? loch_recording_print_difference(recording, after, format, text, bytes, length)
                 : loch_recording_print(recording, format, text, bytes, length);
}

int tool_recording_print(const loch_recording *recording, const loch_recording *after, loch_format format)
{
    size_t bytes = RECORDING_PAGE_BYTES, length = 0;
    char *text = malloc(bytes);
    loch_status status = text ? recording_print(recording, after, format, text, bytes, &length) : LOCH_E_HOST_MEMORY;
    if (status == LOCH_OK && length >= bytes) {
        bytes = length + 1;
        free(text);
        text = malloc(bytes);
        status = text ? recording_print(recording, after, format, text, bytes, &length) : LOCH_E_HOST_MEMORY;
    }
    if (status == LOCH_OK && format == LOCH_FORMAT_TEXT) color_print(stdout, text);
    if (status == LOCH_OK && format == LOCH_FORMAT_JSON) fputs(text, stdout);
    free(text);
    return status == LOCH_OK ? TOOL_DONE : tool_fail_status(status);
}
