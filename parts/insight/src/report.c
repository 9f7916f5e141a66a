/* SPDX-License-Identifier: MIT */
/* Writes the page of one recording or of two. Curves come before the script, which draws them as soon as the browser
 * has read it; lives, the larger part of the file, come behind it. The page loads nothing: its policy allows the one
 * script and the one style that it contains, by their hashes. */
#include "report.h"
#include "report_web.h"
#include "file.h"
#include "format.h"
#include "kit/cancel.h"
#include "kit/fail.h"
#include "kit/sized.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_MARKS 200 /* failures, sleeps and wakes that are marked */
#define REPORT_FRAMES 64 /* frames of one stack */

static const char *const report_by_names[REPORT_BYS] = {"tag", "call site", "size", "stream", "allocator"};

/* --- options --- */

static loch_status report_read_options(const loch_report_options *options, loch_report_options *out)
{
    *out = (loch_report_options){.size = sizeof *out};
    LOCH_RETURN(lochi_sized_read("the options of a report", options, out, sizeof *out));
    if (out->end_ns && out->end_ns <= out->begin_ns)
        return LOCH_FAIL(INVALID, "the window of a report ends at %" PRIu64 " ns, before its start at %" PRIu64 " ns",
                         out->end_ns, out->begin_ns);
    return LOCH_OK;
}

static loch_status report_progress(const loch_report_options *options, size_t step, size_t steps)
{
    if (!options->progress) return LOCH_OK;
    return options->progress((double)step / (double)steps, options->user);
}

/* --- runs --- */

/* Finds the window of a run: its times, and its events. */
static loch_status report_find_window(report_run *run, const loch_report_options *options)
{
    const loch_recording_info *info = &run->info;
    run->begin_ns = options->begin_ns;
    run->end_ns = options->end_ns && options->end_ns < info->duration_ns ? options->end_ns : info->duration_ns;
    if (run->begin_ns && run->begin_ns >= run->end_ns)
        return LOCH_FAIL(INVALID, "%s: the window starts at %" PRIu64 " ns; the recording ends at %" PRIu64 " ns",
                         info->path, run->begin_ns, info->duration_ns);
    while (run->begin < info->events && run->events[run->begin].time_ns < run->begin_ns)
        run->begin++;
    run->end = run->begin;
    while (run->end < info->events && run->events[run->end].time_ns <= run->end_ns)
        run->end++;
    return LOCH_OK;
}

static loch_status report_prepare(report_run *run, const loch_recording *recording, const loch_report_options *options)
{
    run->recording = recording;
    run->events = loch_recording_get_events(recording);
    run->blocks = loch_recording_get_blocks(recording);
    run->info.size = sizeof run->info;
    loch_status status = loch_recording_get_info(recording, &run->info);
    if (status == LOCH_OK) status = report_find_window(run, options);
    if (status == LOCH_OK) status = lochi_insight_report_group(run);
    if (status == LOCH_OK) status = lochi_insight_report_sum(run);
    if (status == LOCH_OK) status = lochi_insight_report_select(run);
    return status;
}

static void report_forget(report_run *run)
{
    lochi_array *arrays[] = {&run->sites,       &run->site_names,   &run->curves.array, &run->calls,
                             &run->lives.array, &run->ranges.array, &run->used_stacks,  &run->stack_order};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        lochi_array_free(arrays[i]);
    for (int by = 0; by < REPORT_BYS; by++) {
        lochi_array_free(&run->groupings[by].band_of);
        lochi_array_free(&run->bands[by].array);
        lochi_array_free(&run->used[by]);
        lochi_array_free(&run->order[by]);
    }
}

/* --- what the page knows, as JSON --- */

static const char *report_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void report_write_number(FILE *file, const char *name, uint64_t value)
{
    fprintf(file, ",\"%s\":%" PRIu64, name, value);
}

static void report_write_text(FILE *file, const char *name, const char *text)
{
    fprintf(file, ",\"%s\":", name);
    lochi_insight_report_write_json(file, text);
}

/* Writes bands with their names, and the names and bands of the groups that lives use. */
static void report_write_grouping(const report_run *run, report_by by, FILE *file)
{
    const report_grouping *grouping = &run->groupings[by];
    const uint8_t *band_of = grouping->band_of.data;
    const uint32_t *order = run->order[by].data;
    fprintf(file, "{\"by\":\"%s\",\"groups\":%" PRIu32 ",\"others\":%" PRIu32 ",\"bands\":[", report_by_names[by],
            grouping->groups, grouping->others);
    for (uint32_t i = 0; i < grouping->bands; i++) {
        if (i) fputc(',', file);
        if (grouping->others && i + 1 == grouping->bands)
            fprintf(file, "\"other (%" PRIu32 ")\"", grouping->others);
        else
            lochi_insight_report_write_group(run, by, grouping->named[i], file);
    }
    fputs("],\"names\":[", file);
    for (size_t i = 0; i < run->order[by].count; i++) {
        if (i) fputc(',', file);
        lochi_insight_report_write_group(run, by, order[i], file);
    }
    fputs("],\"band\":[", file);
    for (size_t i = 0; grouping->bands && i < run->order[by].count; i++)
        fprintf(file, i ? ",%u" : "%u", band_of[order[i]]);
    fputs("]}", file);
}

static void report_write_powers(FILE *file, const char *name, const uint64_t powers[REPORT_POWERS])
{
    int count = REPORT_POWERS;
    while (count && !powers[count - 1])
        count--;
    fprintf(file, ",\"%s\":[", name);
    for (int i = 0; i < count; i++)
        fprintf(file, i ? ",%" PRIu64 : "%" PRIu64, powers[i]);
    fputc(']', file);
}

static void report_write_calls(const report_run *run, FILE *file)
{
    const report_call *calls = run->calls.data;
    bool is_first = true;
    fputs(",\"calls\":[", file);
    for (size_t i = 0; i < run->info.calls; i++) {
        if (!calls[i].count) continue;
        fputs(is_first ? "{\"name\":" : ",{\"name\":", file);
        lochi_insight_report_write_json(file, loch_recording_get_name(run->recording, LOCH_RECORDING_CALL, i));
        fprintf(file, ",\"count\":%" PRIu64 ",\"ns\":%" PRIu64 ",\"most\":%" PRIu64 "}", calls[i].count,
                calls[i].total_ns, calls[i].most_ns);
        is_first = false;
    }
    fputc(']', file);
}

/* Writes what is marked on the curve: failures, sleeps and wakes. */
static void report_write_marks(const report_run *run, FILE *file)
{
    size_t count = 0;
    fputs(",\"marks\":[", file);
    for (size_t i = run->begin; i < run->end && count < REPORT_MARKS; i++) {
        const loch_recording_event *event = &run->events[i];
        const char *kind = event->kind == LOCH_RECORDED_FAIL    ? "failed"
                           : event->kind == LOCH_RECORDED_SLEEP ? "sleep"
                           : event->kind == LOCH_RECORDED_WAKE  ? "wake"
                                                                : NULL;
        if (!kind) continue;
        fprintf(file, "%s{\"kind\":\"%s\",\"time\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"allocator\":", count ? "," : "",
                kind, event->time_ns, event->value);
        lochi_insight_report_write_json(
            file, loch_recording_get_name(run->recording, LOCH_RECORDING_ALLOCATOR, event->subject));
        fputc('}', file);
        count++;
    }
    fputc(']', file);
}

/* Writes the frames that stacks use, each once, and the stacks as lists of their numbers. */
static bool report_write_stacks(const report_run *run, FILE *file)
{
    lochi_table found = {.mask = 0};
    const uint32_t *order = run->stack_order.data;
    uint32_t frames_count = 0;
    bool is_good = true;
    fputs(",\"frames\":[", file);
    for (size_t i = 0; is_good && i < run->stack_order.count; i++) {
        size_t count;
        const char *const *frames = loch_recording_get_stack(run->recording, order[i], &count);
        for (size_t j = 0; is_good && j < count && j < REPORT_FRAMES; j++) {
            if (lochi_table_find(&found, (uintptr_t)frames[j]) != UINT32_MAX) continue;
            is_good = lochi_table_set(&found, (uintptr_t)frames[j], frames_count);
            if (frames_count++) fputc(',', file);
            lochi_insight_report_write_json(file, frames[j]);
        }
    }
    fputs("],\"stacks\":[", file);
    for (size_t i = 0; is_good && i < run->stack_order.count; i++) {
        size_t count;
        const char *const *frames = loch_recording_get_stack(run->recording, order[i], &count);
        fputs(i ? ",[" : "[", file);
        for (size_t j = 0; j < count && j < REPORT_FRAMES; j++)
            fprintf(file, j ? ",%" PRIu32 : "%" PRIu32, lochi_table_find(&found, (uintptr_t)frames[j]));
        fputc(']', file);
    }
    fputc(']', file);
    lochi_table_free(&found);
    return is_good;
}

static void report_write_figures(const report_run *run, FILE *file)
{
    const loch_recording_info *info = &run->info;
    report_write_text(file, "program", info->program);
    report_write_number(file, "format", info->format);
    report_write_number(file, "events", info->events);
    report_write_number(file, "blocks", info->blocks);
    report_write_number(file, "lost", info->lost);
    report_write_number(file, "started", info->started_ns);
    report_write_number(file, "ended", info->was_ended);
    report_write_number(file, "threads", info->threads);
    report_write_number(file, "begin", run->begin_ns);
    report_write_number(file, "end", run->end_ns);
    report_write_number(file, "duration", info->duration_ns);
    report_write_number(file, "shown", run->end - run->begin);
    report_write_number(file, "columns", run->columns);
    report_write_number(file, "peak", run->peak);
    report_write_number(file, "peakMoment", run->peak_moment);
    report_write_number(file, "peakTime", run->peak_moment ? run->events[run->peak_moment - 1].time_ns : 0);
    report_write_number(file, "peakReserved", run->peak_reserved);
    report_write_number(file, "atEnd", run->at_end);
    report_write_number(file, "atEndBlocks", run->at_end_blocks);
    report_write_number(file, "lastMoment", run->end);
    report_write_number(file, "allocations", run->allocations);
    report_write_number(file, "frees", run->frees);
    report_write_number(file, "ranges", info->ranges);
    report_write_number(file, "addresses", info->has_addresses);
    report_write_number(file, "lives", run->lives_count);
    report_write_number(file, "livesAll", run->lives_all);
    report_write_number(file, "stacksLeftOut", run->stacks_left_out);
    report_write_number(file, "rangesKept", run->ranges_count);
    report_write_number(file, "rangesAll", run->ranges_all);
    fprintf(file, ",\"livesShare\":%.6f,\"rangesShare\":%.6f", run->lives_share, run->ranges_share);
}

static bool report_write_run(const report_run *run, size_t index, const loch_report_options *options, FILE *file)
{
    fputs("{\"path\":", file);
    lochi_insight_report_write_json(file, run->info.path);
    report_write_text(file, "label",
                      options->labels[index] ? options->labels[index] : report_file_name(run->info.path));
    report_write_text(file, "note", options->notes[index] ? options->notes[index] : "");
    report_write_figures(run, file);
    fputs(",\"groupings\":[", file);
    for (int by = 0; by < REPORT_BYS; by++) {
        if (by) fputc(',', file);
        report_write_grouping(run, (report_by)by, file);
    }
    fputs("],\"devices\":[", file);
    for (size_t i = 0; i < run->info.devices; i++) {
        if (i) fputc(',', file);
        lochi_insight_report_write_json(file, loch_recording_get_name(run->recording, LOCH_RECORDING_DEVICE, i));
    }
    fputc(']', file);
    report_write_powers(file, "sizes", run->sizes);
    report_write_powers(file, "lifetimes", run->lifetimes);
    report_write_calls(run, file);
    report_write_marks(run, file);
    const bool is_good = report_write_stacks(run, file);
    fputc('}', file);
    return is_good;
}

/* --- the page --- */

/* Writes the hash of a script or style as a policy names it: in base64. */
static void report_write_hash(FILE *file, const char *sha256)
{
    uint8_t bytes[32];
    for (size_t i = 0; i < sizeof bytes; i++) {
        const char digits[3] = {sha256[2 * i], sha256[2 * i + 1], 0};
        bytes[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    fputs("'sha256-", file);
    lochi_insight_report_write_base64(file, bytes, sizeof bytes);
    fputs("'", file);
}

static void report_write_data(FILE *file, size_t run, const char *name, const report_bytes *bytes)
{
    fprintf(file, "<script type=\"text/plain\" id=\"data-%zu-%s\">", run, name);
    lochi_insight_report_write_base64(file, bytes->array.data, bytes->array.count);
    fputs("</script>\n", file);
}

static void report_write_web(FILE *file, const report_web *web)
{
    fwrite(web->data, 1, web->bytes, file);
}

static void report_write_head(FILE *file, const char *title)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
          "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src ",
          file);
    report_write_hash(file, lochi_insight_report_script.sha256);
    fputs("; style-src ", file);
    report_write_hash(file, lochi_insight_report_style.sha256);
    fputs("; base-uri 'none'; form-action 'none'\">\n"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
          "<meta name=\"color-scheme\" content=\"light dark\">\n<title>",
          file);
    lochi_insight_report_write_html(file, title);
    fputs("</title>\n<style>", file);
    report_write_web(file, &lochi_insight_report_style);
    fputs("</style>\n</head>\n", file);
}

static bool report_write(FILE *file, const report_run *runs, size_t count, const loch_report_options *options)
{
    char title[512];
    bool is_good = true;
    snprintf(title, sizeof title, "%s%s%s", report_file_name(runs[0].info.path), count > 1 ? " and " : "",
             count > 1 ? report_file_name(runs[1].info.path) : "");
    report_write_head(file, options->title ? options->title : title);
    report_write_web(file, &lochi_insight_report_body);
    fprintf(file, "<script type=\"application/json\" id=\"meta\">{\"version\":\"%s\",\"title\":", loch_version());
    lochi_insight_report_write_json(file, options->title ? options->title : title);
    fputs(",\"runs\":[", file);
    for (size_t i = 0; i < count; i++) {
        if (i) fputc(',', file);
        is_good = report_write_run(&runs[i], i, options, file) && is_good;
    }
    fputs("]}</script>\n", file);
    for (size_t i = 0; i < count; i++) {
        report_write_data(file, i, "curves", &runs[i].curves);
        for (int by = 0; by < REPORT_BYS; by++) {
            char name[32];
            snprintf(name, sizeof name, "bands-%d", by);
            if (runs[i].groupings[by].bands) report_write_data(file, i, name, &runs[i].bands[by]);
        }
    }
    fputs("<script>", file);
    report_write_web(file, &lochi_insight_report_script);
    fputs("</script>\n", file);
    for (size_t i = 0; i < count; i++) {
        report_write_data(file, i, "lives", &runs[i].lives);
        report_write_data(file, i, "ranges", &runs[i].ranges);
    }
    fputs("</body>\n</html>\n", file);
    return is_good;
}

loch_status loch_report_save(const loch_recording *const *recordings, size_t count, const char *path,
                             const loch_report_options *options)
{
    LOCHI_NOT_CANCELLED;
    loch_report_options read;
    report_run runs[2] = {{.recording = NULL}, {.recording = NULL}};
    insight_sink sink = {.path = path};
    if (!recordings || !path || count < 1 || count > 2 || !recordings[0] || !recordings[count - 1])
        return LOCH_FAIL(INVALID, "a report needs one recording or two, and a path");
    loch_status status = report_read_options(options, &read);
    for (size_t i = 0; i < count && status == LOCH_OK; i++) {
        status = report_prepare(&runs[i], recordings[i], &read);
        if (status == LOCH_OK) status = report_progress(&read, i + 1, count + 1);
    }
    if (status == LOCH_OK) status = lochi_insight_sink_open(path, &sink);
    if (status == LOCH_OK) {
        if (!report_write(sink.file, runs, count, &read)) status = lochi_insight_no_memory(path);
        status = lochi_insight_sink_close(&sink, status);
    }
    for (size_t i = 0; i < count; i++)
        report_forget(&runs[i]);
    return status == LOCH_OK ? report_progress(&read, 1, 1) : status;
}
