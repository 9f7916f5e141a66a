/* SPDX-License-Identifier: MIT */
/* The table of formats: each has a reader, a writer or both (format.c). */
#ifndef LOCH_INSIGHT_FORMAT_H
#define LOCH_INSIGHT_FORMAT_H

#include "file.h"
#include "recording.h"
#include "kit/fail.h"

/* Fills an empty recording from the contents of a file. E_INVALID with a sentence that names the file and the place;
 * E_HOST_MEMORY. The caller calls lochi_insight_recording_finish. */
typedef loch_status lochi_insight_reader(const insight_source *source, const loch_recording_options *options,
                                         loch_recording *recording);

/* Writes a recording. Failures of the file itself are found by lochi_insight_sink_close. */
typedef loch_status lochi_insight_writer(const loch_recording *recording, const loch_recording_options *options,
                                         insight_sink *sink);

lochi_insight_reader lochi_insight_read_text, lochi_insight_read_binary, lochi_insight_read_torch,
    lochi_insight_read_snapshot;
lochi_insight_writer lochi_insight_write_text, lochi_insight_write_binary, lochi_insight_write_torch,
    lochi_insight_write_chrome, lochi_insight_write_folded, lochi_insight_write_metrics;

/* Reports progress if the options ask for it. */
static inline loch_status lochi_insight_progress(const loch_recording_options *options, size_t done, size_t all)
{
    if (!options->progress || !all) return LOCH_OK;
    return options->progress((double)done / (double)all, options->user);
}

/* Sets the sentence for missing memory. Returns E_HOST_MEMORY. */
static inline loch_status lochi_insight_no_memory(const char *path)
{
    return LOCH_FAIL(HOST_MEMORY, "%s: there is no memory for the recording", path);
}

#endif
