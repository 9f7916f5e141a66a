/* SPDX-License-Identifier: MIT */
/* Running a trace through an allocator: shared by `loch replay` and `loch bench pool`. */
#ifndef LOCH_TOOL_REPLAY_H
#define LOCH_TOOL_REPLAY_H

#include "trace.h"
#include <loch/driver.h>

/* What stays between the runs of one process, as libc's heap does: the first run makes it. Starts as all zero. */
typedef struct replay_kept {
    loch_allocator *allocator;
    loch_stream **streams; /* by index; NULL for the default stream */
    size_t streams_count;
    char first_failure[256]; /* sentence of the first allocation that could not be served; empty without one */
} replay_kept;

/* What is run. */
typedef struct replay_setup {
    const trace_log *trace;
    loch_device *device;   /* NULL for libc */
    const char *allocator; /* "pool", "direct", "libc", or a registered one's name */
    bool touches;          /* one byte of every page of every block is written */
    replay_kept *kept;
} replay_setup;

/* What came out of one run. */
typedef struct replay_result {
    double ns_per_event;         /* the allocator's own time */
    double total_ns_per_event;   /* nothing taken off */
    uint64_t peak_reserved;      /* 0 for libc, which does not tell */
    uint64_t peak_reserved_ever; /* of several runs; peak_reserved is the first one's then */
    uint64_t rss_before;         /* resident bytes of the process before the loop; with `touches` only */
    uint64_t rss_peak;           /* and the most in it */
    uint64_t driver_ns;
    uint64_t driver_calls[LOCH_CALL_COUNT];
    size_t failures;                       /* allocations that could not be served */
    size_t failures_by[LOCH_STATUS_COUNT]; /* by the status that they had */
} replay_result;

/* Opens the device for a replay: simulated ones get a clock that is told the time, and queued work that lasts `lag_ns`,
 * unless their name says something else. */
loch_status replay_open_device(const char *name, uint64_t lag_ns, loch_device **out);

/* Runs the trace once. Live blocks are freed at the end. */
loch_status replay_run(const replay_setup *setup, replay_result *out);

/* Gives back what the runs have kept. */
void replay_end(replay_kept *kept);

/* Sorts the results of several runs by their own time and sums them up in `out`: the median run, with the median of the
 * total times, the highest resident memory and failures, and what was held and asked of the driver in the first run, which
 * finds an empty allocator. */
void replay_summarize(replay_result *results, size_t count, replay_result *out);

#endif
