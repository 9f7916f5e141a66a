/* SPDX-License-Identifier: MIT */
/* Benchmarks. `loch bench` has those that a user of the library wants, bench/core those that its engineers want. Both
 * programs read the same options (bench_run.c). */
#ifndef LOCH_TOOL_BENCH_H
#define LOCH_TOOL_BENCH_H

#include "tool.h"

#define TOOL_TRACES_MAX 16
#define TOOL_NUMBERS_MAX 6

/* Options of a benchmark. */
typedef struct tool_bench_options {
    const char *command; /* word between the name of the program and that of the benchmark: "bench", or "" */
    const char *device;
    const char *traces[TOOL_TRACES_MAX]; /* names of trace files */
    size_t traces_count;
    size_t bytes[TOOL_NUMBERS_MAX], bytes_count;     /* threads: sizes of blocks */
    size_t threads[TOOL_NUMBERS_MAX], threads_count; /* threads, record: numbers of threads */
    bool is_hand_over;                               /* threads: only blocks that change threads */
    const char *as; /* hidden: the allocator to measure, in a child process (peers.h); NULL otherwise */
    bool is_json, is_quick;
} tool_bench_options;

typedef struct tool_benchmark {
    const char *name;
    int (*run)(const tool_bench_options *options);
    bool has_contents; /* moves contents, which takes time: a simulated device is backed */
} tool_benchmark;

/* The benchmarks of one program, and the names of those that another program runs. */
typedef struct tool_bench_set {
    const char *command; /* as in tool_bench_options */
    const tool_benchmark *benchmarks;
    size_t count;
    const char *const *others; /* ends with NULL */
    const char *others_of;     /* what they belong to: "the loch program" */
    const char *others_by;     /* what runs them: "loch bench" */
} tool_bench_set;

/* Reads the options and runs the benchmark that they name, or all of the set. Returns an exit code. */
int tool_bench_run(const tool_bench_set *set, int count, char **arguments);

/* Measures allocations and frees through the pool and through other allocators. */
int tool_bench_pool(const tool_bench_options *options);

/* Measures copies and fills on a device, and the driver's own calls. */
int tool_bench_copy(const tool_bench_options *options);

/* Measures the cost of driver calls on a device; the output is a cost table for simulated devices. */
int tool_bench_calls(const tool_bench_options *options);

/* Measures what the recorder adds to allocations and frees. */
int tool_bench_record(const tool_bench_options *options);

#endif
