/* SPDX-License-Identifier: MIT */
/* Figures of a recording: what was live at the peak and at the end, driver calls, lifetimes, sizes. */
#ifndef LOCH_INSIGHT_STATS_H
#define LOCH_INSIGHT_STATS_H

#include "recording.h"

#define INSIGHT_LARGEST_MAX 10 /* largest blocks that are listed */
#define INSIGHT_COLUMNS 60     /* of the picture of memory over time */
#define INSIGHT_BUCKETS 10     /* of lifetimes and of sizes */
#define INSIGHT_KINDS (LOCH_RECORDED_FAIL + 1)

/* Blocks that share a tag or a call stack. `key` is its index; LOCH_RECORDING_NONE for blocks without a stack. */
typedef struct insight_group {
    uint32_t key;
    uint64_t blocks, bytes;
} insight_group;

typedef struct insight_held {
    uint32_t block;
    uint64_t bytes;
} insight_held;

/* What is live at a moment. */
typedef struct insight_live {
    uint64_t blocks, bytes;
    lochi_array tags;   /* of insight_group, most bytes first */
    lochi_array stacks; /* of insight_group, most bytes first */
    insight_held largest[INSIGHT_LARGEST_MAX];
    size_t largest_count;
} insight_live;

typedef struct insight_call {
    uint64_t count, ns, longest_ns;
    uint32_t call;
} insight_call;

typedef struct insight_bucket {
    uint64_t count, bytes;
} insight_bucket;

typedef struct insight_stats {
    loch_recording_info info;
    uint64_t counts[INSIGHT_KINDS]; /* events of each kind */
    uint64_t peak_ns;               /* time of the peak of requested bytes */
    uint64_t reserved_at_peak;      /* bytes taken from drivers at that time */
    uint64_t calls_count, calls_ns;
    insight_live peak, end;
    lochi_array calls; /* of insight_call, most time first */
    insight_bucket lifetimes[INSIGHT_BUCKETS], sizes[INSIGHT_BUCKETS];
    uint64_t columns[INSIGHT_COLUMNS]; /* most requested bytes in each part of the time */
} insight_stats;

/* Upper bounds of the buckets, in nanoseconds and in bytes. The last is UINT64_MAX. */
extern const uint64_t lochi_insight_lifetime_bounds[INSIGHT_BUCKETS], lochi_insight_size_bounds[INSIGHT_BUCKETS];

/* Computes the figures. Returns false if there is no memory. Call lochi_insight_stats_free in either case. */
bool lochi_insight_stats_compute(const loch_recording *recording, insight_stats *out);

void lochi_insight_stats_free(insight_stats *stats);

/* Returns the part of reserved memory that was not requested at the peak, 0 to 1; -1 if ranges are not known. */
double lochi_insight_stats_fragmentation(const insight_stats *stats);

#endif
