/* SPDX-License-Identifier: MIT */
#include "report_replay.h"
#include "replay.h"
#include "tool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPORT_LAG_NS 2000000 /* of work that is queued on a simulated stream; the default of `loch replay` */

/* Runs the trace once, and records it. */
static loch_status report_record(const trace_log *trace, const char *device, const char *record)
{
    replay_kept kept = {.allocator = NULL};
    replay_setup setup = {.trace = trace, .allocator = "pool", .kept = &kept, .record = record};
    replay_result result;
    loch_status status = replay_open_device(device, REPORT_LAG_NS, &setup.device);
    if (status == LOCH_OK) status = replay_run(&setup, &result);
    replay_end(&kept);
    loch_device_release(setup.device);
    return status;
}

loch_status report_replay(const loch_recording *recording, const char *device, loch_recording **out)
{
    char folder[4096], record[sizeof folder + 16];
    const char *temporary = getenv("TMPDIR");
    trace_log trace = {.slots = 0};
    *out = NULL;
    snprintf(folder, sizeof folder, "%s/loch-report.XXXXXX", temporary && *temporary ? temporary : "/tmp");
    if (!mkdtemp(folder))
        return loch_error_set(LOCH_E_IO, NULL, 0, "%s: the folder for a replay cannot be made", folder);
    snprintf(record, sizeof record, "%s/replay.loch", folder);
    loch_status status = LOCH_OK;
    if (!trace_translate(&trace, recording))
        status = loch_error_set(LOCH_E_IO, NULL, 0, "the recording cannot be replayed");
    if (status == LOCH_OK) status = report_record(&trace, device, record);
    trace_unload(&trace);
    if (status == LOCH_OK) status = loch_recording_load(record, NULL, out);
    unlink(record);
    rmdir(folder);
    return status;
}
