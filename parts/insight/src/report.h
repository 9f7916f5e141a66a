/* SPDX-License-Identifier: MIT */
/* What a page shows of one recording, summed so that its size does not grow with the recording.
 *
 *   report.c         the page: writes all of it, with the script and the style of web/
 *   report_group.c   bands: blocks grouped by tag, call site, size, stream, allocator; the largest groups by name
 *   report_curve.c   columns of time: least, most and last bytes, the bands at the moment of the most
 *   report_life.c    lives: a block at one address with one size; the largest by bytes times time exactly
 *   report_bytes.c   packed numbers, base64, JSON
 */
#ifndef LOCH_INSIGHT_REPORT_H
#define LOCH_INSIGHT_REPORT_H

#include "recording.h"
#include "report_bytes.h"

#define REPORT_BANDS 10 /* bands of a grouping; the last is "other" if there are more groups */
#define REPORT_COLUMNS 32768
#define REPORT_LIVES 262144
#define REPORT_RANGES 32768
#define REPORT_FRAMES_MAX 524288 /* frames of all stacks in the page */

typedef enum report_by { REPORT_TAG, REPORT_SITE, REPORT_SIZE, REPORT_STREAM, REPORT_ALLOCATOR, REPORT_BYS } report_by;

/* Blocks in groups, and groups in bands. */
typedef struct report_grouping {
    uint32_t groups;              /* number of groups */
    uint32_t bands;               /* number of bands, at most REPORT_BANDS; 0: not shown, as there is one group alone */
    uint32_t others;              /* groups in the last band, which is then "other"; 0: the last band is a group */
    lochi_array band_of;          /* of uint8_t: band of each group */
    uint32_t named[REPORT_BANDS]; /* group of each band */
} report_grouping;

/* Calls of one name. */
typedef struct report_call {
    uint64_t count, total_ns, most_ns;
} report_call;

#define REPORT_POWERS 64

typedef struct report_run {
    const loch_recording *recording;
    const loch_recording_event *events;
    const loch_recording_block *blocks;
    loch_recording_info info;
    uint64_t begin_ns, end_ns; /* window of time */
    size_t begin, end;         /* events in the window */
    lochi_array sites;         /* of uint32_t: number of the call site of each stack */
    lochi_array site_names;    /* of const char *: texts of the call sites; 0 is "" */
    report_grouping groupings[REPORT_BYS];

    /* report_curve.c */
    size_t columns;
    report_bytes curves, bands[REPORT_BYS];
    lochi_array calls;          /* of report_call, for each name */
    uint64_t peak, peak_moment; /* most bytes requested in the window, and when: events until then */
    uint64_t peak_reserved;
    uint64_t at_end, at_end_blocks;    /* bytes and blocks at the end of the window */
    uint64_t sizes[REPORT_POWERS];     /* blocks of 2^i bytes or more, allocated in the window */
    uint64_t lifetimes[REPORT_POWERS]; /* blocks freed in the window after 2^i nanoseconds or more */
    uint64_t allocations, frees;

    /* report_life.c */
    report_bytes lives, ranges;
    size_t lives_count, lives_all, ranges_count, ranges_all;
    double lives_share, ranges_share; /* part of bytes times time that is exact */
    lochi_array used[REPORT_BYS];     /* of uint32_t: 1 + number in the page of each group that a life names */
    lochi_array order[REPORT_BYS];    /* of uint32_t: groups in the order of these numbers */
    size_t frames;                    /* of the stacks in the page */
    bool stacks_left_out;
    lochi_array used_stacks, stack_order; /* as `used` and `order`, of stacks */
} report_run;

/* Groups the blocks. E_HOST_MEMORY. */
loch_status lochi_insight_report_group(report_run *run);

/* Returns the group of a block. */
uint32_t lochi_insight_report_group_of(const report_run *run, report_by by, const loch_recording_block *block);

/* Writes the name of a group as a string of JSON. */
void lochi_insight_report_write_group(const report_run *run, report_by by, uint32_t group, FILE *file);

/* Sums the events of the window in columns. E_HOST_MEMORY. */
loch_status lochi_insight_report_sum(report_run *run);

/* Selects and packs lives and ranges. Call it after lochi_insight_report_sum, which finds the peak. E_HOST_MEMORY. */
loch_status lochi_insight_report_select(report_run *run);

#endif
