/* SPDX-License-Identifier: MIT */
/* Failures, options and numbers of all commands. */
#include "tool.h"
#include "kit/text.h"
#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TOOL_SENTENCE_MAX 8192 /* two paths and some words */

const char *tool_program = "loch";

/* Prints a sentence with its head and end. A sentence can quote a file: control characters become question marks. */
static void tool_say(char *sentence, const char *end)
{
    for (unsigned char *at = (unsigned char *)sentence; *at; at++) {
        if (iscntrl(*at)) *at = '?';
        if (at[0] == 0xc2 && at[1] >= 0x80 && at[1] < 0xa0) at[0] = at[1] = '?'; /* U+0080 to U+009F */
    }
    fprintf(stderr, "%s: %s%s\n", tool_program, sentence, end);
}

int tool_fail(const char *format, ...)
{
    char sentence[TOOL_SENTENCE_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    tool_say(sentence, "");
    return TOOL_FAILED;
}

int tool_misuse(const char *command, const char *format, ...)
{
    char sentence[TOOL_SENTENCE_MAX], hint[64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    snprintf(hint, sizeof hint, " (try %s %s%s--help)", tool_program, command, *command ? " " : "");
    tool_say(sentence, hint);
    return TOOL_MISUSED;
}

int tool_fail_status(loch_status status)
{
    const loch_error *error = loch_error_get();
    return tool_fail("%s", error->status == status && *error->sentence ? error->sentence : loch_status_text(status));
}

const char *tool_next(tool_options *options)
{
    return options->at < options->count ? options->arguments[options->at++] : NULL;
}

bool tool_option_value(tool_options *options, const char *argument, const char *name, const char **value)
{
    const size_t length = strlen(name);
    if (strncmp(argument, name, length) != 0) return false;
    if (argument[length] == '=') {
        *value = argument + length + 1;
        return true;
    }
    if (argument[length]) return false;
    *value = tool_next(options);
    return true;
}

const char *tool_format_name(const char *name, char text[TOOL_NAME_BYTES])
{
    lochi_text out = lochi_text_begin(text, TOOL_NAME_BYTES);
    lochi_text_write_name(&out, name);
    return text;
}

const char *tool_format_rate(double bytes_per_second, char text[32])
{
    static const char *const units[] = {"B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
    size_t unit = 0;
    while (bytes_per_second >= 1000 && unit + 1 < sizeof units / sizeof *units) {
        bytes_per_second /= 1000;
        unit++;
    }
    snprintf(text, 32, "%.2f %s", bytes_per_second, units[unit]);
    return text;
}
