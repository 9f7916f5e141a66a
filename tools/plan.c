/* SPDX-License-Identifier: MIT */
/* `loch plan`: computes offsets for the buffers of a table or of a recording. */
#include "json.h"
#include "plan_picture.h"
#include "recording.h"
#include "tool.h"
#include <errno.h>
#include <inttypes.h>
#include <loch/plan.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct plan_arguments {
    const char *path, *picture, *out, *check;
    loch_plan_options options;
    bool is_json;
} plan_arguments;

/* A problem of a table, or one that was made from a recording. */
typedef struct plan_input {
    loch_plan_problem *loaded; /* owned; NULL for a recording */
    loch_plan_problem problem;
    loch_plan_buffer *buffers; /* owned; NULL for a table */
} plan_input;

/* --- reading --- */

static bool plan_is_table(const char *path)
{
    const size_t length = strlen(path);
    return length >= 4 && !strcmp(path + length - 4, ".csv");
}

/* Makes a buffer of each block. Times are indices of events. A block that is resized needs its largest size. */
static int plan_read_recording(const char *path, plan_input *input)
{
    loch_recording *recording;
    const int code = tool_recording_load(path, NULL, &recording);
    if (code != TOOL_DONE) return code;
    loch_recording_info info = {.size = sizeof info};
    const loch_status status = loch_recording_get_info(recording, &info);
    const loch_recording_block *blocks = loch_recording_get_blocks(recording);
    const loch_recording_event *events = loch_recording_get_events(recording);
    uint64_t *sizes = calloc(info.blocks + 1, sizeof *sizes);
    input->buffers = calloc(info.blocks + 1, sizeof *input->buffers);
    if (status != LOCH_OK || !sizes || !input->buffers) {
        free(sizes);
        loch_recording_destroy(recording);
        return status != LOCH_OK ? tool_fail_status(status) : tool_fail("%s: there is no memory for its blocks", path);
    }
    for (uint64_t i = 0; i < info.blocks; i++)
        sizes[i] = blocks[i].bytes;
    for (uint64_t i = 0; i < info.events; i++)
        if (events[i].kind == LOCH_RECORDED_RESIZE && events[i].value > sizes[events[i].subject])
            sizes[events[i].subject] = events[i].value;
    size_t count = 0;
    for (uint64_t i = 0; i < info.blocks; i++) {
        const bool is_live = blocks[i].free_event == LOCH_RECORDING_NONE;
        const loch_plan_buffer buffer = {.bytes = sizes[i],
                                         .alignment = UINT64_C(1) << blocks[i].alignment,
                                         .first = blocks[i].alloc_event,
                                         .last = is_live ? info.events : blocks[i].free_event};
        if (buffer.bytes && buffer.first < buffer.last) input->buffers[count++] = buffer;
    }
    free(sizes);
    loch_recording_destroy(recording);
    input->problem = (loch_plan_problem){.size = sizeof input->problem, .buffers = input->buffers, .count = count};
    return TOOL_DONE;
}

static int plan_read_input(const char *path, plan_input *input)
{
    *input = (plan_input){.loaded = NULL};
    if (!plan_is_table(path)) return plan_read_recording(path, input);
    const loch_status status = loch_plan_problem_load(path, &input->loaded);
    if (status != LOCH_OK) return tool_fail_status(status);
    input->problem = *input->loaded;
    return TOOL_DONE;
}

static void plan_free_input(plan_input *input)
{
    loch_plan_problem_destroy(input->loaded);
    free(input->buffers);
}

/* --- writing --- */

/* Writes the buffers with their offsets as a table. */
static int plan_write_table(const loch_plan_problem *problem, const uint64_t *offsets, const char *path)
{
    FILE *file = fopen(path, "we");
    if (!file) return tool_fail("%s: %s", path, strerror(errno));
    fputs("id,lower,upper,size,alignment,offset\n", file);
    for (size_t i = 0; i < problem->count; i++) {
        const loch_plan_buffer *buffer = &problem->buffers[i];
        if (problem->names)
            fputs(problem->names[i], file);
        else
            fprintf(file, "%zu", i);
        fprintf(file, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "\n", buffer->first, buffer->last,
                buffer->bytes, buffer->alignment ? buffer->alignment : 1, offsets[i]);
    }
    const bool is_written = !ferror(file);
    return fclose(file) || !is_written ? tool_fail("%s could not be written", path) : TOOL_DONE;
}

static int plan_write(const plan_arguments *arguments, const loch_plan_problem *problem, const loch_plan *plan)
{
    int code = TOOL_DONE;
    if (arguments->out && plan_is_table(arguments->out)) {
        code = plan_write_table(problem, loch_plan_get_offsets(plan), arguments->out);
    } else if (arguments->out) {
        const loch_status status = loch_plan_save(plan, arguments->out);
        if (status != LOCH_OK) code = tool_fail_status(status);
    }
    if (code == TOOL_DONE && arguments->picture)
        code = plan_picture_save(problem, plan, arguments->options.capacity, arguments->picture);
    return code;
}

static void plan_print(const plan_arguments *arguments, const loch_plan_info *info, uint64_t elapsed_ns)
{
    const double ratio = info->lower_bound ? (double)info->height / (double)info->lower_bound : 1;
    if (arguments->is_json) {
        json_writer json = {.file = stdout};
        json_open_object(&json, NULL);
        json_text(&json, "file", arguments->path);
        json_number(&json, "buffers", info->count);
        json_number(&json, "height", info->height);
        json_number(&json, "lower_bound", info->lower_bound);
        json_real(&json, "ratio", ratio);
        json_flag(&json, "is_best", info->is_best);
        json_number(&json, "nodes", info->nodes);
        json_number(&json, "elapsed_ns", elapsed_ns);
        json_close_object(&json);
        return;
    }
    printf("buffers       %zu\n", info->count);
    printf("height        %" PRIu64 "  (%s)\n", info->height, LOCHI_SIZE_ROUND(info->height, 2));
    printf("lower bound   %" PRIu64 "  (%s)\n", info->lower_bound, LOCHI_SIZE_ROUND(info->lower_bound, 2));
    if (info->is_best)
        puts("              no plan has a smaller height");
    else
        printf("              the height is %.2f %% above it\n", 100 * (ratio - 1));
    if (!arguments->check) printf("time          %.3f s\n", (double)elapsed_ns / 1e9);
}

/* --- running --- */

static loch_status plan_report(const loch_plan_progress *progress, void *user)
{
    tool_progress *drawn = user;
    tool_progress_show(drawn, (size_t)(progress->elapsed_ns / 1000000));
    return LOCH_OK;
}

static int plan_make(const plan_arguments *arguments, const loch_plan_problem *problem, loch_plan **out)
{
    loch_plan_options options = arguments->options;
    const uint64_t limit_ns = options.time_limit_ns ? options.time_limit_ns : LOCH_PLAN_TIME_DEFAULT_NS;
    tool_progress progress = {.label = "planning", .total = (size_t)(limit_ns / 1000000)};
    options.size = sizeof options;
    options.report = plan_report;
    options.user = &progress;
    const loch_status status = loch_plan_create(problem, &options, out);
    tool_progress_end(&progress);
    return status == LOCH_OK ? TOOL_DONE : tool_fail_status(status);
}

static int plan_run_arguments(const plan_arguments *arguments)
{
    plan_input input;
    loch_plan *plan = NULL;
    int code = plan_read_input(arguments->path, &input);
    const uint64_t start_ns = loch_host_now_ns();
    if (code == TOOL_DONE && arguments->check) {
        const loch_status status = loch_plan_load(arguments->check, &plan);
        if (status != LOCH_OK) code = tool_fail_status(status);
    } else if (code == TOOL_DONE) {
        code = plan_make(arguments, &input.problem, &plan);
    }
    const uint64_t elapsed_ns = loch_host_now_ns() - start_ns;
    loch_plan_info info = {.size = sizeof info};
    loch_status status = LOCH_OK;
    if (code == TOOL_DONE) status = loch_plan_check(plan, &input.problem);
    if (code == TOOL_DONE && status == LOCH_OK) status = loch_plan_get_info(plan, &info);
    if (status != LOCH_OK) code = tool_fail_status(status);
    if (code == TOOL_DONE) code = plan_write(arguments, &input.problem, plan);
    if (code == TOOL_DONE) plan_print(arguments, &info, elapsed_ns);
    loch_plan_destroy(plan);
    plan_free_input(&input);
    return code;
}

static bool plan_parse_number(const char *text, uint64_t *out)
{
    char *end;
    if (!text || *text < '0' || *text > '9') return false;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return !errno && !*end && *out;
}

static bool plan_parse_seconds(const char *text, uint64_t *out)
{
    char *end;
    if (!text || *text < '0' || *text > '9') return false;
    const double seconds = strtod(text, &end);
    if (*end || !(seconds > 0) || seconds > 1e9) return false;
    *out = (uint64_t)(seconds * 1e9);
    return true;
}

static bool plan_parse_method(const char *text, loch_plan_method *out)
{
    static const char *const names[] = {"auto", "fast", "greedy"};
    for (unsigned i = 0; text && i < sizeof names / sizeof *names; i++)
        if (!strcmp(text, names[i])) {
            *out = (loch_plan_method)i;
            return true;
        }
    return false;
}

static int plan_run(int count, char **list)
{
    tool_options options = {"plan", count, list, 0};
    plan_arguments arguments = {.path = NULL};
    const char *argument, *value;
    uint64_t threads;
    while ((argument = tool_next(&options))) {
        if (!strcmp(argument, "--json")) {
            arguments.is_json = true;
        } else if (tool_option_value(&options, argument, "--capacity", &value)) {
            if (!plan_parse_number(value, &arguments.options.capacity))
                return tool_misuse("plan", "--capacity needs a number of bytes");
        } else if (tool_option_value(&options, argument, "--time", &value)) {
            if (!plan_parse_seconds(value, &arguments.options.time_limit_ns))
                return tool_misuse("plan", "--time needs a number of seconds");
        } else if (tool_option_value(&options, argument, "--threads", &value)) {
            if (!plan_parse_number(value, &threads) || threads > TOOL_THREADS_MAX)
                return tool_misuse("plan", "--threads needs a number up to %d", TOOL_THREADS_MAX);
            arguments.options.threads = (size_t)threads;
        } else if (tool_option_value(&options, argument, "--method", &value)) {
            if (!plan_parse_method(value, &arguments.options.method))
                return tool_misuse("plan", "--method is auto, fast or greedy");
        } else if (tool_option_value(&options, argument, "--svg", &arguments.picture)) {
            if (!arguments.picture) return tool_misuse("plan", "--svg needs the name of a file");
        } else if (tool_option_value(&options, argument, "--check", &arguments.check)) {
            if (!arguments.check) return tool_misuse("plan", "--check needs the name of a plan");
        } else if (tool_option_value(&options, argument, "-o", &arguments.out)) {
            if (!arguments.out) return tool_misuse("plan", "-o needs the name of a file");
        } else if ((*argument == '-' && argument[1]) || arguments.path) {
            return tool_misuse("plan", "\"%s\" is not understood", argument);
        } else {
            arguments.path = argument;
        }
    }
    if (!arguments.path) return tool_misuse("plan", "a table or a recording is needed");
    return plan_run_arguments(&arguments);
}

const tool_command tool_plan = {
    "plan",
    "computes offsets for buffers whose lives are known",
    "Usage: loch plan FILE [OPTION...]\n\n"
    "Computes offsets for buffers whose sizes and lives are known, so that they need little memory together.\n"
    "FILE is a table in the format of MiniMalloc (id,lower,upper,size; .csv), or a recording: a trace, a file of\n"
    "the recorder or a memory snapshot of PyTorch.\n\n"
    "  --capacity BYTES  takes the first plan that fits; without it, looks for the smallest height\n"
    "  --time SECONDS    time limit by the wall clock, not processor time (default 10)\n"
    "  --threads N       threads for parts that do not share a time (default 1)\n"
    "  --method NAME     auto, fast (no exact search) or greedy (by size, for comparisons)\n"
    "  -o FILE           writes the plan, or a table with offsets if the name ends in .csv\n"
    "  --check PATH      checks the plan in this file against FILE instead of making one\n"
    "  --svg FILE        draws the plan\n"
    "  --json            exact figures as one JSON object\n",
    .run = plan_run,
};
