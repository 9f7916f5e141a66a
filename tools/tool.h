/* SPDX-License-Identifier: MIT */
/* Functions that the commands of the `loch` program share, and the program of bench/core. Exit codes: 0 success, 1
 * failure, 2 wrong arguments; the last two print one line on standard error. */
#ifndef LOCH_TOOL_H
#define LOCH_TOOL_H

#include "kit/size.h"
#include <loch/loch.h>
#include <loch/driver.h>
#include <stdbool.h>
#include <stddef.h>

#define TOOL_THREADS_MAX 256 /* of an option --threads */

enum { TOOL_DONE = 0, TOOL_FAILED = 1, TOOL_MISUSED = 2 };

/* One command: its name, a line for the list of commands, its help, and the function that runs it. */
typedef struct tool_command {
    const char *name, *summary, *help;
    int (*run)(int count, char **arguments);
    bool shows_options; /* runs also if a variable of the environment cannot be parsed, and shows what is wrong */
} tool_command;

extern const tool_command tool_info, tool_replay, tool_bench, tool_convert, tool_stats, tool_diff, tool_report,
    tool_top, tool_plan, tool_fleet;

/* Runs `loch complete`: prints the words that can stand in the place of the last of `words` (complete.c). */
int tool_complete(const tool_command *const *commands, size_t commands_count, int count, char **words);

/* Name of the program, for lines on standard error: "loch", unless main sets another one. */
extern const char *tool_program;

/* Makes the program end quietly when the reader of its output has gone, as in `loch stats FILE | head`, even if its
 * parent ignores the signal. */
void tool_end_with_pipe(void);

/* Runs a command, or prints its help. What follows "--" is never an option. Returns its exit code. */
int tool_run(const tool_command *command, int count, char **arguments);

/* Writes what is left of standard output. Returns `code`, or TOOL_FAILED after a line on standard error. */
int tool_end(int code);

/* Returns whether an argument asks for help. */
bool tool_is_help(const char *argument);

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

/* Formats a rate as "4.30 TB/s". Returns `text`. */
const char *tool_format_rate(double bytes_per_second, char text[32]);

/* Formats a name of a file, or of another process, for a terminal: control characters as "\x1b", bytes that are
 * not UTF-8 as question marks. Cuts what is too long. Returns `text`. */
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

#endif
