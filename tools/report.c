/* SPDX-License-Identifier: MIT */
/* `loch report`: the picture of a recording, or of two side by side, as one HTML file. A trace says what was requested
 * and not what an allocator did; it is replayed first, so that the picture has reserved memory and addresses. */
#include "report_replay.h"
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
    const char *out, *title, *device;
    uint64_t begin_ns, end_ns;
    bool replays;  /* the second recording is the replay of the first */
    bool is_plain; /* traces are not replayed */
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
        } else if (tool_option_value(&options, argument, "--device", &parsed->device)) {
            if (!parsed->device) return tool_misuse("report", "--device needs a name such as sim:140GiB");
        } else if (!strcmp(argument, "--replay")) {
            parsed->replays = true;
        } else if (!strcmp(argument, "--plain")) {
            parsed->is_plain = true;
        } else if (*argument == '-' && argument[1]) {
            return tool_misuse("report", "there is no option \"%s\"", argument);
        } else if (parsed->count == 2) {
            return tool_misuse("report", "a report shows one recording or two, and \"%s\" is the third", argument);
        } else {
            parsed->paths[parsed->count++] = argument;
        }
    }
    if (!parsed->count) return tool_misuse("report", "no recording given");
    if (parsed->replays && (parsed->count == 2 || parsed->is_plain))
        return tool_misuse("report", "--replay is for one recording, and not with --plain");
    if (!parsed->out) parsed->out = "report.html";
    if (!parsed->device) parsed->device = "sim:140GiB";
    return TOOL_DONE;
}

/* --- recordings --- */

/* Recordings of a report, and what the page says of them. */
typedef struct report_shown {
    loch_recording *recordings[2];
    size_t count;
    char labels[2][256], notes[2][512];
} report_shown;

static const char *report_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* Loads one recording. A trace is replaced by the recording of its replay. */
static loch_status report_load(const report_arguments *parsed, const char *path, report_shown *shown)
{
    tool_progress progress = {.label = "reading"};
    const loch_recording_options options = {.size = sizeof options, .progress = tool_progress_part, .user = &progress};
    const size_t at = shown->count;
    loch_recording_info info = {.size = sizeof info};
    loch_status status = loch_recording_load(path, &options, &shown->recordings[at]);
    tool_progress_end(&progress);
    if (status != LOCH_OK) return status;
    shown->count++;
    snprintf(shown->labels[at], sizeof shown->labels[at], "%s", report_file_name(path));
    status = loch_recording_get_info(shown->recordings[at], &info);
    if (status != LOCH_OK || parsed->is_plain || parsed->replays || info.format != LOCH_RECORDING_TEXT ||
        info.has_addresses)
        return status;
    snprintf(shown->notes[at], sizeof shown->notes[at],
             "The file is a trace: it says what was requested. Loch replayed it on %s, so that reserved memory, "
             "addresses and driver calls are those of Loch's pool.",
             parsed->device);
    loch_recording *replayed;
    status = report_replay(shown->recordings[at], parsed->device, &replayed);
    if (status != LOCH_OK) return status;
    loch_recording_destroy(shown->recordings[at]);
    shown->recordings[at] = replayed;
    return LOCH_OK;
}

/* Adds the replay of the first recording as the second. */
static loch_status report_add_replay(const report_arguments *parsed, report_shown *shown)
{
    loch_recording_info info = {.size = sizeof info};
    loch_status status = loch_recording_get_info(shown->recordings[0], &info);
    if (status == LOCH_OK) status = report_replay(shown->recordings[0], parsed->device, &shown->recordings[1]);
    if (status != LOCH_OK) return status;
    shown->count = 2;
    if (info.format == LOCH_RECORDING_TORCH) snprintf(shown->labels[0], sizeof shown->labels[0], "PyTorch's allocator");
    snprintf(shown->labels[1], sizeof shown->labels[1], "Loch");
    snprintf(shown->notes[1], sizeof shown->notes[1], "Loch replayed the requests of %s on %s.",
             report_file_name(parsed->paths[0]), parsed->device);
    return LOCH_OK;
}

static loch_status report_save(const report_arguments *parsed, const report_shown *shown)
{
    char title[600];
    tool_progress progress = {.label = "report"};
    loch_report_options options = {.size = sizeof options,
                                   .title = parsed->title ? parsed->title : title,
                                   .begin_ns = parsed->begin_ns,
                                   .end_ns = parsed->end_ns,
                                   .progress = tool_progress_part,
                                   .user = &progress};
    snprintf(title, sizeof title, "%s%s%s", report_file_name(parsed->paths[0]), parsed->count > 1 ? " and " : "",
             parsed->count > 1 ? report_file_name(parsed->paths[1]) : "");
    for (size_t i = 0; i < shown->count; i++) {
        options.labels[i] = shown->labels[i];
        options.notes[i] = shown->notes[i];
    }
    const loch_status status =
        loch_report_save((const loch_recording *const *)shown->recordings, shown->count, parsed->out, &options);
    tool_progress_end(&progress);
    return status;
}

static int report_command(int count, char **arguments)
{
    report_arguments parsed = {.paths = {"", ""}};
    report_shown shown = {.count = 0};
    const int code = report_parse(&parsed, count, arguments);
    if (code != TOOL_DONE) return code;
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < parsed.count && status == LOCH_OK; i++)
        status = report_load(&parsed, parsed.paths[i], &shown);
    if (status == LOCH_OK && parsed.replays) status = report_add_replay(&parsed, &shown);
    if (status == LOCH_OK) status = report_save(&parsed, &shown);
    loch_recording_destroy(shown.recordings[0]);
    loch_recording_destroy(shown.recordings[1]);
    if (status != LOCH_OK) return tool_fail_status(status);
    struct stat found;
    char name[TOOL_NAME_BYTES];
    if (parsed.out && strcmp(parsed.out, "-") != 0 && !stat(parsed.out, &found))
        printf("%s: %s\n", tool_format_name(parsed.out, name), LOCHI_SIZE_ROUND((size_t)found.st_size, 2));
    return TOOL_DONE;
}

const tool_command tool_report = {
    .name = "report",
    .summary = "draws a recording, or two side by side, as one HTML file",
    .help =
        "Usage: loch report FILE [FILE2] [-o OUT.html] [OPTION...]\n\n"
        "Draws a recording as one HTML file that opens in a browser without a network: memory over time by tag, the\n"
        "address map at any moment, what was live at the peak, leaks, driver calls. Two files are shown side by side.\n"
        "FILE is a recording (.loch), a trace (.trace, also .gz, .zst), or a memory snapshot of PyTorch (.pickle). A\n"
        "trace is replayed by Loch on a simulated device, as it has neither reserved memory nor addresses.\n\n"
        "  -o, --out PATH       where to write; default report.html, \"-\" for standard output\n"
        "      --title TEXT     title of the page; default: the names of the files\n"
        "      --begin TIME     show the recording from this time on: 1.5s, 20ms, 3us, 7ns\n"
        "      --end TIME       show the recording until this time\n"
        "      --replay         show beside FILE what Loch does with the same requests\n"
        "      --device DEVICE  where to replay; default sim:140GiB\n"
        "      --plain          show a trace as it is\n",
    .run = report_command};
