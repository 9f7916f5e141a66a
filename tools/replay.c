/* SPDX-License-Identifier: MIT */
/* `loch replay`: runs a trace through an allocator and prints its cost in time and memory. */
#include "replay.h"
#include "json.h"
#include "tool.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define REPLAY_REPEATS_MAX 100000
#define REPLAY_LAG_US_MAX (UINT64_MAX / 2000)

typedef struct replay_command {
    const char *path, *device, *allocator, *record;
    uint64_t repeats, lag_us;
    bool touches, allows_failures, is_json;
} replay_command;

/* --- options --- */

static bool replay_number(const char *text, uint64_t least, uint64_t most, uint64_t *out)
{
    char *end = NULL;
    if (!text || *text < '0' || *text > '9' || strlen(text) > 19) return false;
    *out = strtoull(text, &end, 10);
    return !*end && *out >= least && *out <= most;
}

static int replay_read(replay_command *command, int count, char **arguments)
{
    tool_options options = {"replay", count, arguments, 0};
    const char *argument, *value;
    while ((argument = tool_next(&options))) {
        if (!strcmp(argument, "--json")) {
            command->is_json = true;
        } else if (!strcmp(argument, "--touch")) {
            command->touches = true;
        } else if (!strcmp(argument, "--allow-failures")) {
            command->allows_failures = true;
        } else if (tool_option_value(&options, argument, "--device", &command->device)) {
            if (!command->device) return tool_misuse("replay", "--device needs a device's name");
        } else if (tool_option_value(&options, argument, "--allocator", &command->allocator)) {
            if (!command->allocator) return tool_misuse("replay", "--allocator needs an allocator's name");
        } else if (tool_option_value(&options, argument, "--record", &command->record)) {
            if (!command->record) return tool_misuse("replay", "--record needs a file");
        } else if (tool_option_value(&options, argument, "--repeat", &value)) {
            if (!replay_number(value, 1, REPLAY_REPEATS_MAX, &command->repeats))
                return tool_misuse("replay", "--repeat needs a number from 1 to %d", REPLAY_REPEATS_MAX);
        } else if (tool_option_value(&options, argument, "--lag", &value)) {
            if (!replay_number(value, 0, REPLAY_LAG_US_MAX, &command->lag_us))
                return tool_misuse("replay", "--lag needs a number of microseconds");
        } else if ((*argument == '-' && argument[1]) || command->path) {
            return tool_misuse("replay", "\"%s\" is not understood", argument);
        } else {
            command->path = argument;
        }
    }
    if (!command->path) return tool_misuse("replay", "a trace is needed");
    if (!strcmp(command->allocator, "planned")) {
        if (!command->repeats) command->repeats = REPLAY_RECORDED + 6;
        if (command->repeats <= REPLAY_RECORDED)
            return tool_misuse("replay", "planned needs --repeat %d or more: it records the first %d runs",
                               REPLAY_RECORDED + 1, REPLAY_RECORDED);
    }
    if (!command->repeats) command->repeats = 1;
    if (command->record && (command->repeats > 1 || !strcmp(command->allocator, "libc")))
        return tool_misuse("replay", "--record records one run, and not of libc");
    if (!strcmp(command->allocator, "libc") && strcmp(command->device, "cpu") != 0)
        return tool_misuse("replay", "libc has memory of the device cpu alone");
    return TOOL_DONE;
}

/* --- printing --- */

static double replay_ratio(uint64_t value, uint64_t of)
{
    return of ? (double)value / (double)of : 0;
}

static uint64_t replay_rss(const replay_result *result)
{
    return result->rss_peak > result->rss_before ? result->rss_peak - result->rss_before : 0;
}

static double replay_driver_share(const trace_log *trace, const replay_result *result)
{
    return trace->duration_us ? (double)result->driver_ns / 1000 / (double)trace->duration_us : 0;
}

static void replay_print_json(const replay_command *command, const trace_log *trace, const replay_result *result)
{
    json_writer json = {.file = stdout};
    json_open_object(&json, NULL);
    json_text(&json, "trace", command->path);
    json_text(&json, "device", command->device);
    json_text(&json, "allocator", command->allocator);
    json_number(&json, "repeats", command->repeats);
    json_number(&json, "events", trace->events.count);
    json_number(&json, "streams", trace->streams);
    json_number(&json, "duration_us", trace->duration_us);
    json_real(&json, "ns_per_event", result->ns_per_event);
    json_real(&json, "total_ns_per_event", result->total_ns_per_event);
    json_number(&json, "peak_requested", trace->peak_requested);
    json_number(&json, "peak_reserved", result->peak_reserved);
    json_number(&json, "peak_reserved_ever", result->peak_reserved_ever);
    json_real(&json, "reserved_ratio", replay_ratio(result->peak_reserved, trace->peak_requested));
    json_open_object(&json, "driver_calls");
    for (size_t i = 0; i < LOCH_CALL_COUNT; i++)
        if (result->driver_calls[i])
            json_number(&json, loch_driver_call_name((loch_driver_call)i), result->driver_calls[i]);
    json_close_object(&json);
    json_number(&json, "driver_ns", result->driver_ns);
    json_real(&json, "driver_share", replay_driver_share(trace, result));
    json_open_object(&json, "failures_by_status");
    for (size_t i = 0; i < LOCH_STATUS_COUNT; i++)
        if (result->failures_by[i]) json_number(&json, loch_status_name((loch_status)i), result->failures_by[i]);
    json_close_object(&json);
    json_number(&json, "failures", result->failures);
    if (command->touches) {
        json_number(&json, "peak_rss", replay_rss(result));
        json_real(&json, "rss_ratio", replay_ratio(replay_rss(result), trace->peak_requested));
    }
    json_close_object(&json);
}

static void replay_print_driver(const trace_log *trace, const replay_result *result)
{
    bool is_first = true;
    for (size_t i = 0; i < LOCH_CALL_COUNT; i++) {
        if (!result->driver_calls[i]) continue;
        printf("%-18s %" PRIu64 " %s\n", is_first ? "driver calls" : "", result->driver_calls[i],
               loch_driver_call_name((loch_driver_call)i));
        is_first = false;
    }
    printf("%-18s %.3f ms, %.3f %% of the program's time\n", "driver time", (double)result->driver_ns / 1e6,
           100 * replay_driver_share(trace, result));
}

static void replay_print_text(const replay_command *command, const trace_log *trace, const replay_result *result)
{
    char name[TOOL_NAME_BYTES];
    printf("%-18s %s\n", "trace", tool_format_name(command->path, name));
    printf("%-18s %zu in %.3f s, %zu %s\n", "events", trace->events.count, (double)trace->duration_us / 1e6,
           trace->streams, trace->streams == 1 ? "stream" : "streams");
    printf("%-18s %s on %s\n", "allocator", command->allocator, command->device);
    printf("%-18s %.1f ns, %.1f ns with the driver's\n", "time an event", result->ns_per_event,
           result->total_ns_per_event);
    printf("%-18s %s\n", "peak requested", LOCHI_SIZE_ROUND(trace->peak_requested, 2));
    if (strcmp(command->allocator, "libc") != 0) {
        printf("%-18s %s, %.3f times that\n", "peak reserved", LOCHI_SIZE_ROUND(result->peak_reserved, 2),
               replay_ratio(result->peak_reserved, trace->peak_requested));
        replay_print_driver(trace, result);
    }
    if (command->touches)
        printf("%-18s %s, %.3f times that\n", "peak resident", LOCHI_SIZE_ROUND(replay_rss(result), 2),
               replay_ratio(replay_rss(result), trace->peak_requested));
    printf("%-18s %zu", "failures", result->failures);
    const char *separator = ": ";
    for (size_t i = 0; i < LOCH_STATUS_COUNT; i++) {
        if (!result->failures_by[i]) continue;
        printf("%s%zu %s", separator, result->failures_by[i], loch_status_name((loch_status)i));
        separator = ", ";
    }
    putchar('\n');
}

/* --- running --- */

static int replay_repeat(const replay_command *command, replay_setup *setup)
{
    replay_result summary = {.failures = 0},
                  *results = calloc(command->repeats + 1, sizeof *results); /* never of 0 bytes */
    tool_progress progress = {.label = "replaying"};
    loch_status status = LOCH_OK;
    if (!results) return tool_fail("no memory for %" PRIu64 " results", command->repeats);
    setup->progress = tool_progress_is_wanted() ? &progress : NULL;
    setup->runs = command->repeats;
    for (setup->run = 0; status == LOCH_OK && setup->run < command->repeats; setup->run++)
        status = replay_run(setup, &results[setup->run]);
    setup->progress = NULL;
    tool_progress_end(&progress);
    if (status == LOCH_OK) {
        const size_t recorded = setup->kept->planned ? REPLAY_RECORDED : 0;
        replay_summarize(results + recorded, command->repeats - recorded, &summary);
        if (command->is_json)
            replay_print_json(command, setup->trace, &summary);
        else
            replay_print_text(command, setup->trace, &summary);
    }
    free(results);
    if (status != LOCH_OK) return tool_fail_status(status);
    if (!summary.failures || command->allows_failures) return TOOL_DONE;
    return tool_fail(
        "%zu allocations could not be served, the first one because %s (--allow-failures if that is meant)",
        summary.failures, setup->kept->first_failure);
}

static int replay_command_run(int count, char **arguments)
{
    replay_command command = {.device = "cpu", .allocator = "pool", .lag_us = 2000};
    trace_log trace = {.slots = 0};
    int code = replay_read(&command, count, arguments);
    if (code != TOOL_DONE) return code;
    replay_kept kept = {.allocator = NULL};
    replay_setup setup = {.trace = &trace,
                          .allocator = command.allocator,
                          .touches = command.touches,
                          .record = command.record,
                          .kept = &kept};
    if (strcmp(command.allocator, "libc") != 0) {
        const loch_status status = replay_open_device(command.device, 1000 * command.lag_us, &setup.device);
        if (status != LOCH_OK) return tool_fail_status(status);
    }
    if (command.touches && setup.device && !loch_device_can(setup.device, LOCH_CAN_HOST_ACCESS))
        code = tool_misuse("replay", "--touch needs memory that the host can write, and %s has none", command.device);
    if (code == TOOL_DONE) code = trace_load(&trace, command.path) ? TOOL_DONE : TOOL_FAILED;
    if (code == TOOL_DONE) code = replay_repeat(&command, &setup);
    replay_end(&kept);
    trace_unload(&trace);
    loch_device_release(setup.device);
    return code;
}

const tool_command tool_replay = {
    "replay",
    "runs a trace of allocations through an allocator",
    "Usage: loch replay TRACE [--device DEVICE] [--allocator NAME] [--touch] [--repeat N] [--lag US]\n"
    "                   [--record FILE] [--allow-failures] [--json]\n\n"
    "Runs a trace of allocations through an allocator and prints what it cost in time and memory.\n"
    "TRACE is a file, plain or compressed by gzip or zstd, or - for standard input. Exits with 1 if an allocation\n"
    "could not be served.\n\n"
    "  --device DEVICE    where: cpu (default), cuda:0, sim:40GiB, ...\n"
    "  --allocator NAME   pool (default), planned, direct, libc, or one that is registered.\n"
    "                     planned: the first 4 of 10 runs are recorded, the others planned and counted\n"
    "  --touch            writes one byte of every page, and prints how much memory was resident\n"
    "  --repeat N         runs it N times; the median of the times counts, and the highest of the peaks\n"
    "  --lag US           on simulated devices, how long work queued on a stream takes (default 2000)\n"
    "  --record FILE      records what the allocator does to a file for loch report, stats and convert\n"
    "  --allow-failures   exits with 0 although allocations could not be served; they are counted all the same\n"
    "  --json             figures as one JSON object\n",
    .run = replay_command_run,
};
