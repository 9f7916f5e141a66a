/* SPDX-License-Identifier: MIT */
/* What the commands of the `loch` program share. Exit codes: 0 done, 1 failed, 2 called wrongly; the last two print one
 * line on standard error. */
#ifndef LOCH_TOOL_H
#define LOCH_TOOL_H

#include <loch/loch.h>
#include <loch/driver.h>
#include <stdbool.h>
#include <stddef.h>

enum { TOOL_DONE = 0, TOOL_FAILED = 1, TOOL_MISUSED = 2 };

/* One command: its name, a line for the list of commands, its help, and what runs it. */
typedef struct tool_command {
    const char *name, *summary, *help;
    int (*run)(int count, char **arguments);
} tool_command;

extern const tool_command tool_info, tool_replay, tool_bench;

/* Prints "loch: ..." on standard error; returns TOOL_FAILED. */
int tool_fail(const char *format, ...) LOCH_PRINTF(1, 2);

/* Prints "loch: ... (try ...)" on standard error; returns TOOL_MISUSED. */
int tool_misuse(const char *command, const char *format, ...) LOCH_PRINTF(2, 3);

/* Prints what the error record says of a failed call; returns TOOL_FAILED. */
int tool_fail_status(loch_status status);

/* Options of one command, read one by one. */
typedef struct tool_options {
    const char *command;
    int count;
    char **arguments;
    int at;
} tool_options;

/* The next argument, or NULL at the end. */
const char *tool_next(tool_options *options);

/* If `argument` is `--name=VALUE`, or `--name` with VALUE behind it, gives VALUE (NULL when it is missing) and returns
 * true. */
bool tool_option_value(tool_options *options, const char *argument, const char *name, const char **value);

/* "1.50 GiB", "512 B"; `text` is returned. */
const char *tool_format_bytes(size_t bytes, char text[32]);

/* "4.30 TB/s"; `text` is returned. */
const char *tool_format_rate(double bytes_per_second, char text[32]);

/* How far something has come, on a terminal: drawn on standard error once it takes longer than a second. */
typedef struct tool_progress {
    const char *label;
    size_t total;
    uint64_t start_ns; /* of the first call; 0 before it */
    bool is_drawn;
} tool_progress;

/* Says that `done` of all steps are done. Not for loops that are timed: it reads the clock and may draw. */
void tool_progress_show(tool_progress *progress, size_t done);

/* Removes what was drawn. */
void tool_progress_end(tool_progress *progress);

#define TOOL_TRACES_MAX 16

/* What a benchmark may be told. */
typedef struct tool_bench_options {
    const char *device;
    const char *traces[TOOL_TRACES_MAX]; /* files */
    size_t traces_count;
    const char *as; /* hidden: measures this allocator alone, for the process that asked (peers.h); NULL otherwise */
    bool is_json, is_quick;
} tool_bench_options;

/* Measures copies and fills on a device, beside the driver's own calls. */
int tool_bench_copy(const tool_bench_options *options);

/* Measures what driver calls cost on a device; the text is a cost table for simulated devices. */
int tool_bench_calls(const tool_bench_options *options);

/* Measures what a tracking wrapper adds to allocations and frees. */
int tool_bench_tracking(const tool_bench_options *options);

/* Measures allocations and frees through the pool, beside other allocators. */
int tool_bench_pool(const tool_bench_options *options);

/* Measures how throughput grows with threads, beside other allocators. */
int tool_bench_threads(const tool_bench_options *options);

/* Measures copies of tensors between layouts, types and places, beside plain copies of as many bytes. */
int tool_bench_strided(const tool_bench_options *options);

/* Measures the compaction of a pool that was left half empty. */
int tool_bench_compact(const tool_bench_options *options);

/* Measures how fast a pool goes to sleep and wakes, beside plain copies of as many bytes. */
int tool_bench_sleep(const tool_bench_options *options);

#endif
