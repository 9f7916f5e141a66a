/* SPDX-License-Identifier: MIT */
/* Runs a trace through an allocator. Used by `loch replay` and `loch bench pool`. */
#ifndef LOCH_TOOL_REPLAY_H
#define LOCH_TOOL_REPLAY_H

#include "tool.h"
#include "trace.h"
#include <loch/driver.h>
#include <loch/planned.h>

/* Runs that a planned pool records before the first one that its plan serves. */
#define REPLAY_RECORDED 4

/* State that stays between the runs of one process, like libc's heap. The first run creates it. Initially all zero. */
typedef struct replay_kept {
    loch_allocator *allocator;
    loch_allocator *pool;  /* behind `planned`; NULL otherwise */
    loch_planned *planned; /* the allocator's, if it is planned */
    loch_stream **streams; /* by index; NULL for the default stream */
    size_t streams_count;
    char first_failure[LOCH_ERROR_SENTENCE_MAX]; /* sentence of the first allocation that failed; empty for none */
} replay_kept;

/* What to run. */
typedef struct replay_setup {
    const trace_log *trace;
    loch_device *device;   /* NULL for libc */
    const char *allocator; /* "pool", "planned", "direct", "libc", or the name of a registered allocator */
    bool touches;          /* write one byte of every page of every block */
    const char *record;    /* path of a recording of the run, without the frees at its end; NULL for none */
    replay_kept *kept;
    tool_progress *progress; /* drawn while the trace runs; NULL for none */
    size_t run, runs;        /* number of this run, from 0, and of all runs; with a progress */
} replay_setup;

/* Results of one run. */
typedef struct replay_result {
    double ns_per_event;         /* time of the allocator itself */
    double total_ns_per_event;   /* whole time of the loop */
    uint64_t peak_reserved;      /* 0 for libc, which does not report it */
    uint64_t peak_reserved_ever; /* most of several runs; peak_reserved is then that of the first run */
    uint64_t rss_before;         /* resident bytes of the process before the loop; only with `touches` */
    uint64_t rss_peak;           /* the most resident bytes during the loop */
    uint64_t driver_ns;
    uint64_t driver_calls[LOCH_CALL_COUNT];
    size_t failures;                       /* number of allocations that failed */
    size_t failures_by[LOCH_STATUS_COUNT]; /* number of failures by status */
} replay_result;

/* Opens the device for a replay. Simulated devices get a clock that follows the trace, and queued work of `lag_ns`,
 * unless their name says otherwise. */
loch_status replay_open_device(const char *name, uint64_t lag_ns, loch_device **out);

/* Runs the trace once. Live blocks are freed at the end. */
loch_status replay_run(const replay_setup *setup, replay_result *out);

/* Frees the state that the runs have kept. */
void replay_end(replay_kept *kept);

/* Sorts the results of several runs by their own time and summarises them in `out`: the median run, with the median of
 * the total times, the highest resident memory and failures. Reserved memory and driver calls are those of the first
 * run, which starts with an empty allocator. */
void replay_summarize(replay_result *results, size_t count, replay_result *out);

#endif
