/* SPDX-License-Identifier: MIT */
/* Runs benchmarks by name, for `loch bench` and for bench/core. */
#include "bench.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Runs a benchmark. A simulated device has contents only if they are measured, or by its name. */
static int bench_run_one(const tool_benchmark *benchmark, const tool_bench_options *given)
{
    char name[LOCH_DEVICE_NAME_MAX];
    tool_bench_options options = *given;
    const bool is_bare = !strncmp(given->device, "sim:", 4) && !strstr(given->device, "backed");
    if (is_bare && !benchmark->has_contents &&
        (size_t)snprintf(name, sizeof name, "%s,unbacked", given->device) < sizeof name)
        options.device = name;
    return benchmark->run(&options);
}

/* Reads a number from 1 to `most`, and appends it to a list. Returns false if it is wrong or the list is full. */
static bool bench_read_number(const char *text, size_t most, size_t *list, size_t *count)
{
    char *end;
    const unsigned long long number = text && *text != '-' ? strtoull(text, &end, 10) : 0;
    if (!number || *end || number > most || *count == TOOL_NUMBERS_MAX) return false;
    list[(*count)++] = (size_t)number;
    return true;
}

static int bench_read(tool_bench_options *out, const char **name, int count, char **arguments)
{
    tool_options options = {out->command, count, arguments, 0};
    const char *argument, *trace, *number;
    while ((argument = tool_next(&options))) {
        if (!strcmp(argument, "--json")) {
            out->is_json = true;
        } else if (!strcmp(argument, "--quick")) {
            out->is_quick = true;
        } else if (!strcmp(argument, "--hand-over")) {
            out->is_hand_over = true;
        } else if (tool_option_value(&options, argument, "--bytes", &number)) {
            if (!bench_read_number(number, (size_t)1 << 30, out->bytes, &out->bytes_count))
                return tool_misuse(out->command, "--bytes needs a size up to 1073741824, at most %d times",
                                   TOOL_NUMBERS_MAX);
        } else if (tool_option_value(&options, argument, "--threads", &number)) {
            if (!bench_read_number(number, TOOL_THREADS_MAX, out->threads, &out->threads_count))
                return tool_misuse(out->command, "--threads needs a number up to %d, at most %d times",
                                   TOOL_THREADS_MAX, TOOL_NUMBERS_MAX);
        } else if (tool_option_value(&options, argument, "--device", &out->device)) {
            if (!out->device) return tool_misuse(out->command, "--device needs a device's name");
        } else if (tool_option_value(&options, argument, "--as", &out->as)) {
            if (!out->as) return tool_misuse(out->command, "--as needs an allocator's name");
        } else if (tool_option_value(&options, argument, "--trace", &trace)) {
            if (!trace) return tool_misuse(out->command, "--trace needs a file");
            if (out->traces_count == TOOL_TRACES_MAX)
                return tool_misuse(out->command, "at most %d traces are measured at a time", TOOL_TRACES_MAX);
            out->traces[out->traces_count++] = trace;
        } else if (*argument == '-' || *name) {
            return tool_misuse(out->command, "\"%s\" is not understood", argument);
        } else {
            *name = argument;
        }
    }
    return TOOL_DONE;
}

/* Runs the benchmark of this name, or says which program has it. */
static int bench_run_named(const tool_bench_set *set, const char *name, const tool_bench_options *options)
{
    for (size_t i = 0; i < set->count; i++)
        if (!strcmp(name, set->benchmarks[i].name)) return bench_run_one(&set->benchmarks[i], options);
    for (const char *const *other = set->others; *other; other++)
        if (!strcmp(name, *other))
            return tool_misuse(set->command, "\"%s\" is a benchmark of %s: %s %s", name, set->others_of, set->others_by,
                               name);
    return tool_misuse(set->command, "there is no benchmark \"%s\"", name);
}

int tool_bench_run(const tool_bench_set *set, int count, char **arguments)
{
    tool_bench_options options = {.command = set->command, .device = "cpu"};
    const char *name = NULL;
    int code = bench_read(&options, &name, count, arguments);
    if (code != TOOL_DONE) return code;
    if (name) return bench_run_named(set, name, &options);
    if (options.is_json) return tool_misuse(set->command, "--json needs the NAME of one benchmark");
    for (size_t i = 0; code == TOOL_DONE && i < set->count; i++) {
        printf("%s%s\n", i ? "\n" : "", set->benchmarks[i].name);
        fflush(stdout);
        code = bench_run_one(&set->benchmarks[i], &options);
    }
    return code;
}
