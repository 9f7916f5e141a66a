/* SPDX-License-Identifier: MIT */
/* `loch report`: the picture of a recording, or of two side by side, as one HTML file. */
#include "tool.h"
#include <loch/insight.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct report_arguments {
    const char *paths[2];
    size_t count;
    const char *out, *title;
    uint64_t begin_ns, end_ns;
} report_arguments;

/* Parses "1.5s", "20ms", "3us", "7ns"; a number alone is in seconds. */
static bool report_parse_time(const char *text, uint64_t *out)
{
    static const struct {
        const char *name;
        double scale;
    } units[] = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}};
    char *end;
    const double value = text ? strtod(text, &end) : -1;
    if (!text || end == text || !(value >= 0 && value < 1e12)) return false;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (!strcmp(end, units[i].name) && value * units[i].scale < 9e18) {
            *out = (uint64_t)(value * units[i].scale + 0.5);
            return true;
        }
    return false;
}

static int report_parse(report_arguments *parsed, int count, char **arguments)
{
    tool_options options = {.command = "report", .count = count, .arguments = arguments};
    const char *argument, *value;
    while ((argument = tool_next(&options))) {
        if (tool_option_value(&options, argument, "--out", &parsed->out) ||
            tool_option_value(&options, argument, "-o", &parsed->out)) {
            if (!parsed->out) return tool_misuse("report", "-o needs a path");
        } else if (tool_option_value(&options, argument, "--title", &parsed->title)) {
            if (!parsed->title) return tool_misuse("report", "--title needs a text");
        } else if (tool_option_value(&options, argument, "--begin", &value)) {
            if (!report_parse_time(value, &parsed->begin_ns))
                return tool_misuse("report", "--begin needs a time such as 1.5s or 20ms");
        } else if (tool_option_value(&options, argument, "--end", &value)) {
            if (!report_parse_time(value, &parsed->end_ns) || !parsed->end_ns)
                return tool_misuse("report", "--end needs a time such as 1.5s or 20ms");
        } else if (*argument == '-' && argument[1]) {
            return tool_misuse("report", "there is no option \"%s\"", argument);
        } else if (parsed->count == 2) {
            return tool_misuse("report", "a report shows one recording or two, and \"%s\" is the third", argument);
        } else {
            parsed->paths[parsed->count++] = argument;
        }
    }
    if (!parsed->count) return tool_misuse("report", "no recording given");
    if (!parsed->out) parsed->out = "report.html";
    return TOOL_DONE;
}

/* --- progress --- */

typedef struct report_steps {
    tool_progress bar;
    size_t step; /* of 1000, where the present work begins */
    size_t length;
} report_steps;

static loch_status report_show(double done, void *user)
{
    report_steps *steps = user;
    tool_progress_show(&steps->bar, steps->step + (size_t)(done * (double)steps->length));
    return LOCH_OK;
}

static loch_status report_make(const report_arguments *parsed, loch_recording *recordings[2], report_steps *steps)
{
    loch_recording_options reading = {.size = sizeof reading, .progress = report_show, .user = steps};
    for (size_t i = 0; i < parsed->count; i++) {
        steps->length = 700 / parsed->count;
        const loch_status status = loch_recording_load(parsed->paths[i], &reading, &recordings[i]);
        if (status != LOCH_OK) return status;
        steps->step += steps->length;
    }
    steps->length = 1000 - steps->step;
    const loch_report_options options = {.size = sizeof options,
                                         .title = parsed->title,
                                         .begin_ns = parsed->begin_ns,
                                         .end_ns = parsed->end_ns,
                                         .progress = report_show,
                                         .user = steps};
    return loch_report_save((const loch_recording *const *)recordings, parsed->count, &options, parsed->out);
}

static int report_command(int count, char **arguments)
{
    report_arguments parsed = {.count = 0};
    loch_recording *recordings[2] = {NULL, NULL};
    report_steps steps = {.bar = {.label = "report", .total = 1000}};
    const int code = report_parse(&parsed, count, arguments);
    if (code != TOOL_DONE) return code;
    const loch_status status = report_make(&parsed, recordings, &steps);
    tool_progress_end(&steps.bar);
    loch_recording_destroy(recordings[0]);
    loch_recording_destroy(recordings[1]);
    if (status != LOCH_OK) return tool_fail_status(status);
    struct stat found;
    char bytes[32];
    if (strcmp(parsed.out, "-") && !stat(parsed.out, &found))
        printf("%s: %s\n", parsed.out, tool_format_bytes((size_t)found.st_size, bytes));
    return TOOL_DONE;
}

const tool_command tool_report = {
    .name = "report",
    .summary = "draws a recording, or two side by side, as one HTML file",
    .help =
        "Usage: loch report FILE [FILE2] [-o OUT.html] [OPTION...]\n\n"
        "Draws a recording as one HTML file that opens in a browser without a network: memory over time by tag, the\n"
        "address map at any moment, what was live at the peak, leaks, driver calls. Two files are shown side by side.\n"
        "FILE is a recording (.loch), a trace (.trace, also .gz, .zst), or a memory snapshot of PyTorch (.pickle).\n\n"
        "  -o, --out PATH     where to write; default report.html, \"-\" for standard output\n"
        "      --title TEXT   title of the page; default: the names of the files\n"
        "      --begin TIME   show the recording from this time on: 1.5s, 20ms, 3us, 7ns\n"
        "      --end TIME     show the recording until this time\n",
    .run = report_command};
