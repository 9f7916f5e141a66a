/* SPDX-License-Identifier: MIT */
/* `loch bench`: finds the benchmark by name and runs it. */
#include "tool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name;
    int (*run)(const tool_bench_options *options);
    bool has_contents; /* moves contents, which takes time: a simulated device is backed */
} benchmarks[] = {{"pool", tool_bench_pool, false},         {"threads", tool_bench_threads, false},
                  {"copy", tool_bench_copy, true},          {"calls", tool_bench_calls, false},
                  {"tracking", tool_bench_tracking, false}, {"strided", tool_bench_strided, true},
                  {"compact", tool_bench_compact, false},   {"plan", tool_bench_plan, false},
                  {"sleep", tool_bench_sleep, true},        {"behind-driver", tool_bench_behind, false},
                  {"small", tool_bench_small, false},       {"record", tool_bench_record, false},
                  {"read", tool_bench_read, false},         {"pinned", tool_bench_pinned, false},
                  {"share", tool_bench_share, true},        {"fleet", tool_bench_fleet, true}};

/* Runs a benchmark. A simulated device has contents only if they are measured, or by its name. */
static int bench_run_one(size_t at, const tool_bench_options *given)
{
    char name[LOCH_DEVICE_NAME_MAX];
    tool_bench_options options = *given;
    const bool is_bare = !strncmp(given->device, "sim:", 4) && !strstr(given->device, "backed");
    if (is_bare && !benchmarks[at].has_contents &&
        (size_t)snprintf(name, sizeof name, "%s,unbacked", given->device) < sizeof name)
        options.device = name;
    return benchmarks[at].run(&options);
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
    tool_options options = {"bench", count, arguments, 0};
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
                return tool_misuse("bench", "--bytes needs a size up to 1073741824, at most %d times",
                                   TOOL_NUMBERS_MAX);
        } else if (tool_option_value(&options, argument, "--threads", &number)) {
            if (!bench_read_number(number, TOOL_THREADS_MAX, out->threads, &out->threads_count))
                return tool_misuse("bench", "--threads needs a number up to %d, at most %d times", TOOL_THREADS_MAX,
                                   TOOL_NUMBERS_MAX);
        } else if (tool_option_value(&options, argument, "--device", &out->device)) {
            if (!out->device) return tool_misuse("bench", "--device needs a device's name");
        } else if (tool_option_value(&options, argument, "--as", &out->as)) {
            if (!out->as) return tool_misuse("bench", "--as needs an allocator's name");
        } else if (tool_option_value(&options, argument, "--trace", &trace)) {
            if (!trace) return tool_misuse("bench", "--trace needs a file");
            if (out->traces_count == TOOL_TRACES_MAX)
                return tool_misuse("bench", "at most %d traces are measured at a time", TOOL_TRACES_MAX);
            out->traces[out->traces_count++] = trace;
        } else if (*argument == '-' || *name) {
            return tool_misuse("bench", "\"%s\" is not understood", argument);
        } else {
            *name = argument;
        }
    }
    return TOOL_DONE;
}

static int bench_run(int count, char **arguments)
{
    tool_bench_options options = {.device = "cpu"};
    const char *name = NULL;
    int code = bench_read(&options, &name, count, arguments);
    if (code != TOOL_DONE) return code;
    for (size_t i = 0; name && i < sizeof benchmarks / sizeof *benchmarks; i++)
        if (!strcmp(name, benchmarks[i].name)) return bench_run_one(i, &options);
    if (name) return tool_misuse("bench", "there is no benchmark \"%s\"", name);
    if (options.is_json) return tool_misuse("bench", "--json needs the NAME of one benchmark");
    for (size_t i = 0; code == TOOL_DONE && i < sizeof benchmarks / sizeof *benchmarks; i++) {
        printf("%s%s\n", i ? "\n" : "", benchmarks[i].name);
        fflush(stdout);
        code = bench_run_one(i, &options);
    }
    return code;
}

const tool_command tool_bench = {
    "bench",
    "measures Loch beside what is installed",
    "Usage: loch bench [NAME] [--device DEVICE] [--trace FILE]... [--threads COUNT]... [--bytes SIZE]...\n"
    "                  [--hand-over] [--quick] [--json]\n\n"
    "Measures Loch beside what is installed and prints the ratios. Without a NAME all benchmarks run.\n\n"
    "  pool              allocations and frees, beside libc, jemalloc, mimalloc and tcmalloc; on other\n"
    "                    devices beside the driver's own allocators\n"
    "  threads           how throughput grows with threads, beside the same\n"
    "  small             memory that small blocks of the host take, beside the same\n"
    "  pinned            pinned memory: time to take it, beside the driver's own, and bytes held for those requested\n"
    "  copy              copies and fills, beside the driver's own calls\n"
    "  calls             what driver calls cost; as text a cost table for simulated devices\n"
    "  read              recordings that are read: a memory snapshot of PyTorch, or those of --trace\n"
    "  tracking          what a tracking wrapper adds to allocations and frees\n"
    "  strided           copies of tensors between layouts and types, beside plain copies\n"
    "  compact           the compaction of a pool that was left half empty, beside plain copies\n"
    "  plan              how long a pool of ten thousand handles plans a compaction\n"
    "  sleep             pools that go to sleep and wake, beside plain copies\n"
    "  share             buffers shared with another process: exports, imports, releases\n"
    "  behind-driver     requests that fit, while another thread makes the driver map memory\n"
    "  record            what the recorder adds to allocations and frees, and bytes of its file\n"
    "  fleet             simulated devices of loch fleet that run the traces of --trace: 10 of them, and 1,000\n\n"
    "  --device DEVICE   where: cpu (default), cuda:0, sim:8GiB, ...\n"
    "  --trace FILE      pool: measures the events of a trace too; read: measures this file; fleet: a program; may "
    "be given several times\n"
    "  --threads COUNT   threads, record: how many; may be given several times (default: 1, 2, 4, ...); fleet: "
    "processes\n"
    "  --bytes SIZE      threads: of each block; may be given several times (default: 48, 4096, 65536)\n"
    "  --hand-over       threads: only blocks that one thread allocates and another frees\n"
    "  --quick           few repetitions, to see that it works; the figures are rough\n"
    "  --json            figures as one JSON object; needs a NAME\n",
    bench_run,
};
