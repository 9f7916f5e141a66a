/* SPDX-License-Identifier: MIT */
/* Functions that the commands of the `loch` program share. Exit codes: 0 success, 1 failure, 2 wrong arguments; the
 * last two print one line on standard error. */
#ifndef LOCH_TOOL_H
#define LOCH_TOOL_H

#include <loch/loch.h>
#include <loch/driver.h>
#include <stdbool.h>
#include <stddef.h>

enum { TOOL_DONE = 0, TOOL_FAILED = 1, TOOL_MISUSED = 2 };

/* One command: its name, a line for the list of commands, its help, and the function that runs it. */
typedef struct tool_command {
    const char *name, *summary, *help;
    int (*run)(int count, char **arguments);
} tool_command;

extern const tool_command tool_info, tool_replay, tool_bench, tool_convert, tool_stats, tool_diff, tool_report,
    tool_top, tool_plan, tool_fleet;

/* Runs `loch complete`: prints the words that can stand in the place of the last of `words` (complete.c). */
int tool_complete(const tool_command *const *commands, size_t commands_count, int count, char **words);

/* Prints "loch: ..." on standard error; returns TOOL_FAILED. */
int tool_fail(const char *format, ...) LOCH_PRINTF(1, 2);

/* Prints "loch: ... (try ...)" on standard error; returns TOOL_MISUSED. */
int tool_misuse(const char *command, const char *format, ...) LOCH_PRINTF(2, 3);

/* Prints the error record of a failed call; returns TOOL_FAILED. */
int tool_fail_status(loch_status status);

/* Options of one command, parsed one by one. */
typedef struct tool_options {
    const char *command;
    int count;
    char **arguments;
    int at;
} tool_options;

/* Returns the next argument, or NULL at the end. */
const char *tool_next(tool_options *options);

/* Parses an option with a value. If `argument` is `--name=VALUE`, or `--name` followed by VALUE, stores VALUE (NULL if
 * it is missing) and returns true. */
bool tool_option_value(tool_options *options, const char *argument, const char *name, const char **value);

/* Formats bytes as "1.50 GiB" or "512 B". Returns `text`. */
const char *tool_format_bytes(size_t bytes, char text[32]);

/* Formats a rate as "4.30 TB/s". Returns `text`. */
const char *tool_format_rate(double bytes_per_second, char text[32]);

/* Formats a name of a file, or of another process, for a terminal: control characters as "\\x1b". Cuts what is too long.
 * Returns `text`. */
#define TOOL_NAME_BYTES 512
const char *tool_format_name(const char *name, char text[TOOL_NAME_BYTES]);

/* Progress of a long command. Drawn on standard error, if that is a terminal, once the command takes longer than a
 * second. */
typedef struct tool_progress {
    const char *label;
    size_t total;
    uint64_t start_ns; /* time of the first call; 0 before it */
    uint64_t drawn_ns; /* time of the last drawing */
    bool is_drawn;
} tool_progress;

/* Tells whether progress is drawn at all: standard error is a terminal. */
bool tool_progress_is_wanted(void);

/* Reports that `done` of all steps are done. Not for timed loops: it reads the clock and may draw. */
void tool_progress_show(tool_progress *progress, size_t done);

/* Reports that the part `done`, 0 to 1, is done. A loch_insight_progress: `user` is a tool_progress without a total. */
loch_status tool_progress_part(double done, void *user);

/* Removes what was drawn. The next report starts anew. */
void tool_progress_end(tool_progress *progress);

/* Progress of a benchmark that knows its steps: begin it with their number (0: not known), report each step, hide it
 * before rows are printed, and end it. There is one at a time. */
void tool_steps_begin(const char *label, size_t total);
void tool_steps_next(void);
void tool_steps_hide(void);
void tool_steps_end(void);

#define TOOL_TRACES_MAX 16
#define TOOL_NUMBERS_MAX 6
#define TOOL_THREADS_MAX 256

/* Options of a benchmark. */
typedef struct tool_bench_options {
    const char *device;
    const char *traces[TOOL_TRACES_MAX]; /* names of trace files */
    size_t traces_count;
    size_t bytes[TOOL_NUMBERS_MAX], bytes_count;     /* threads: sizes of blocks */
    size_t threads[TOOL_NUMBERS_MAX], threads_count; /* threads: numbers of threads */
    bool is_hand_over;                               /* threads: only blocks that change threads */
    const char *as; /* hidden: the allocator to measure, in a child process (peers.h); NULL otherwise */
    bool is_json, is_quick;
} tool_bench_options;

/* Measures copies and fills on a device, and the driver's own calls. */
int tool_bench_copy(const tool_bench_options *options);

/* Measures the cost of driver calls on a device; the output is a cost table for simulated devices. */
int tool_bench_calls(const tool_bench_options *options);

/* Measures what a tracking wrapper adds to allocations and frees. */
int tool_bench_tracking(const tool_bench_options *options);

/* Measures allocations and frees through the pool and through other allocators. */
int tool_bench_pool(const tool_bench_options *options);

/* Measures how throughput grows with threads, for the pool and for other allocators. */
int tool_bench_threads(const tool_bench_options *options);

/* Measures the memory that small blocks of the host take, for the pool and for other allocators. */
int tool_bench_small(const tool_bench_options *options);

/* Measures copies of tensors between layouts, types and places, and plain copies of as many bytes. */
int tool_bench_strided(const tool_bench_options *options);

/* Measures the compaction of a pool that is half empty. */
int tool_bench_compact(const tool_bench_options *options);

/* Measures requests that a pool serves while another thread makes the driver map memory. */
int tool_bench_behind(const tool_bench_options *options);
/* Measures how fast recordings are read, and the memory that it takes. */
int tool_bench_read(const tool_bench_options *options);

/* Measures how long it takes to pin memory, and how much a pool of pinned memory holds. */
int tool_bench_pinned(const tool_bench_options *options);

/* Measures how long it takes to share a buffer with another process. */
int tool_bench_share(const tool_bench_options *options);

/* Measures how long a pool plans a compaction. */
int tool_bench_plan(const tool_bench_options *options);

/* Measures how fast a pool goes to sleep and wakes, and plain copies of as many bytes. */
int tool_bench_sleep(const tool_bench_options *options);

/* Measures what the recorder adds to allocations and frees. */
int tool_bench_record(const tool_bench_options *options);

/* Measures what a simulated device of `loch fleet` costs, in a small fleet and in a large one. */
int tool_bench_fleet(const tool_bench_options *options);

#endif
