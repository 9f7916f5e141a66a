/* SPDX-License-Identifier: MIT */
#include "report_replay.h"
#include "replay.h"
#include "tool.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char report_folder[4096], report_file[sizeof report_folder + 16]; /* "" if there is none */
static const int report_signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static struct sigaction report_actions[sizeof report_signals / sizeof *report_signals]; /* before the replay */

/* Removes the temporary files. Calls only what a signal handler may call. */
static void report_clean(void)
{
    if (*report_file) unlink(report_file);
    if (*report_folder) rmdir(report_folder);
}

/* Ends the program as the signal does, after the temporary files were removed. */
static void report_end(int number)
{
    const int saved = errno; /* raise() returns where the signal is blocked */
    report_clean();
    signal(number, SIG_DFL);
    raise(number);
    errno = saved;
}

/* Makes the signals that end a program remove the temporary files. One that is ignored (nohup) stays so. */
static void report_watch(void)
{
    const struct sigaction end = {.sa_handler = report_end, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < sizeof report_signals / sizeof *report_signals; i++) {
        sigaction(report_signals[i], NULL, &report_actions[i]);
        if (report_actions[i].sa_handler == SIG_DFL) sigaction(report_signals[i], &end, NULL);
    }
}

static void report_unwatch(void)
{
    for (size_t i = 0; i < sizeof report_signals / sizeof *report_signals; i++)
        sigaction(report_signals[i], &report_actions[i], NULL);
}

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

/* Makes the folder. Its name is in place before it exists, so that a signal at any moment finds it. */
static loch_status report_make_folder(const char *parent)
{
    *report_file = 0;
    snprintf(report_folder, sizeof report_folder, "%s/loch-report.XXXXXX", parent);
    report_watch();
    if (!mkdtemp(report_folder)) {
        report_unwatch();
        return loch_error_set(LOCH_E_IO, NULL, 0, "%s: the folder for a replay cannot be made", report_folder);
    }
    snprintf(report_file, sizeof report_file, "%s/replay.loch", report_folder);
    return LOCH_OK;
}

loch_status report_replay(const loch_recording *recording, const char *device, loch_recording **out)
{
    const char *temporary = getenv("TMPDIR");
    trace_log trace = {.slots = 0};
    *out = NULL;
    loch_status status = report_make_folder(temporary && *temporary ? temporary : "/tmp");
    if (status != LOCH_OK) return status;
    if (!trace_translate(&trace, recording))
        status = loch_error_set(LOCH_E_IO, NULL, 0, "the recording cannot be replayed");
    if (status == LOCH_OK) status = report_record(&trace, device, report_file);
    trace_unload(&trace);
    if (status == LOCH_OK) status = loch_recording_load(report_file, NULL, out);
    report_clean();
    report_unwatch();
    return status;
}
