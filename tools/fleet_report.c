/* SPDX-License-Identifier: MIT */
#include "fleet_report.h"
#include "json.h"
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_LABEL 26
#define REPORT_COLUMN 24

static const struct {
    const char *name;
    double value;
} report_quantiles[FLEET_QUANTILES] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"max", 1}};

static const char report_model[] =
    "Memory is exact: every device runs the real pool on a simulated GPU. Time is a model: a program runs as long as "
    "it\n"
    "did when it was recorded on one GPU, and driver calls cost what was measured on one GPU. Programs that share a\n"
    "device do not slow each other down; give them compute= if they would.\n";

/* --- figures --- */

static double report_part(double part, double of)
{
    return of > 0 ? part / of : 0;
}

bool fleet_result_fill(fleet_result *result, const fleet_question *question, const fleet_plan *plan)
{
    const fleet_program *programs = question->programs->list;
    uint64_t *waits = malloc((plan->requests_count + 1) * sizeof *waits); /* never of 0 bytes */
    double asked = 0;
    if (!waits) return false;
    result->devices = plan->devices;
    result->used_devices = plan->used_devices;
    result->requests = plan->requests_count;
    result->moved = plan->moved;
    result->given_up = plan->given_up;
    result->done = plan->requests_count - plan->given_up - result->total.sum.killed;
    result->device_failures = plan->failures;
    (void)fleet_plan_wait(plan, 1, waits); /* sorts them */
    for (size_t i = 0; i < FLEET_QUANTILES; i++) {
        result->waits_ns[i] = fleet_quantile(waits, plan->requests_count, report_quantiles[i].value);
        result->held[i] = fleet_quantile(result->total.held, result->total.held_count, report_quantiles[i].value);
    }
    free(waits);
    for (size_t i = 0; i < plan->stints_count; i++) {
        const fleet_stint *stint = &plan->stints[i];
        asked += programs[stint->program].mean_requested * (double)(stint->end_ns - stint->start_ns);
    }
    const double all_ns = (double)plan->span_ns * (double)plan->devices;
    result->span_s = (double)plan->span_ns / FLEET_NS;
    result->busy = report_part((double)plan->busy_ns, all_ns);
    result->together = report_part((double)plan->programs_ns, (double)plan->busy_ns);
    result->asked = report_part(asked, all_ns * (double)question->limit_bytes);
    return true;
}

double fleet_result_lost(const fleet_result *result)
{
    return report_part((double)(result->requests - result->done), (double)result->requests);
}

/* --- text --- */

static const char *report_time(uint64_t ns, char text[32])
{
    if (ns == UINT64_MAX)
        snprintf(text, 32, "never");
    else if (ns < 1000000000)
        snprintf(text, 32, "%.1f ms", (double)ns / 1e6);
    else
        snprintf(text, 32, "%.1f s", (double)ns / 1e9);
    return text;
}

/* How the figure of a row is printed: a count, bytes, a time, a part in per cent, or a number with a fraction. */
typedef enum report_unit { REPORT_COUNT, REPORT_BYTES, REPORT_TIME, REPORT_PART, REPORT_REAL } report_unit;

typedef struct report_row {
    const char *label;
    report_unit unit;
    size_t offset; /* in fleet_result: of a uint64_t, or of a double for the last two units */
} report_row;

static const report_row report_rows[] = {
    {"devices", REPORT_COUNT, offsetof(fleet_result, devices)},
    {"  that ran something", REPORT_COUNT, offsetof(fleet_result, used_devices)},
    {"  budget of one", REPORT_BYTES, offsetof(fleet_result, budget_bytes)},
    {"requests", REPORT_COUNT, offsetof(fleet_result, requests)},
    {"  served", REPORT_COUNT, offsetof(fleet_result, done)},
    {"  out of memory", REPORT_COUNT, offsetof(fleet_result, total.sum.killed)},
    {"failures of devices", REPORT_COUNT, offsetof(fleet_result, device_failures)},
    {"  programs moved", REPORT_COUNT, offsetof(fleet_result, moved)},
    {"  requests given up", REPORT_COUNT, offsetof(fleet_result, given_up)},
    {"wait, median", REPORT_TIME, offsetof(fleet_result, waits_ns[0])},
    {"  90 % of requests", REPORT_TIME, offsetof(fleet_result, waits_ns[1])},
    {"  99 % of requests", REPORT_TIME, offsetof(fleet_result, waits_ns[2])},
    {"  longest", REPORT_TIME, offsetof(fleet_result, waits_ns[3])},
    {"time in use", REPORT_PART, offsetof(fleet_result, busy)},
    {"  programs at a time", REPORT_REAL, offsetof(fleet_result, together)},
    {"memory asked for, mean", REPORT_PART, offsetof(fleet_result, asked)},
    {"held at most, median", REPORT_BYTES, offsetof(fleet_result, held[0])},
    {"  90 % of devices", REPORT_BYTES, offsetof(fleet_result, held[1])},
    {"  largest", REPORT_BYTES, offsetof(fleet_result, held[3])},
    {"longest wait for memory", REPORT_TIME, offsetof(fleet_result, total.sum.late_ns)},
    {"time of driver calls", REPORT_TIME, offsetof(fleet_result, total.sum.driver_ns)},
    {"events simulated", REPORT_COUNT, offsetof(fleet_result, total.sum.events)},
};

static void report_cell(const report_row *row, const fleet_result *result, char text[32])
{
    uint64_t number = 0;
    double real = 0;
    if (row->unit == REPORT_PART || row->unit == REPORT_REAL)
        memcpy(&real, (const char *)result + row->offset, sizeof real);
    else
        memcpy(&number, (const char *)result + row->offset, sizeof number);
    switch (row->unit) {
    case REPORT_COUNT: snprintf(text, 32, "%" PRIu64, number); break;
    case REPORT_BYTES: strcpy(text, LOCHI_SIZE_ROUND(number, 2)); break;
    case REPORT_TIME: (void)report_time(number, text); break;
    case REPORT_PART: snprintf(text, 32, "%.1f %%", 100 * real); break;
    case REPORT_REAL: snprintf(text, 32, "%.2f", real); break;
    }
}

static void report_programs(const fleet_question *question)
{
    const fleet_programs *programs = question->programs;
    printf("%-20s %8s %10s %11s %11s %11s %8s\n", "program", "weight", "runs for", "asks for", "holds alone", "limit",
           "compute");
    for (size_t i = 0; i < programs->count; i++) {
        const fleet_program *program = &programs->list[i];
        char compute[16] = "-", name[TOOL_NAME_BYTES];
        if (program->entry->compute) snprintf(compute, sizeof compute, "%.1f %%", (double)program->entry->compute / 10);
        printf("%-20s %8.4g %8.3f s %11s %11s %11s %8s\n", tool_format_name(program->entry->name, name),
               question->demand->needs[i].weight, (double)program->duration_ns / FLEET_NS,
               LOCHI_SIZE_ROUND(program->alone.peak_requested, 2), LOCHI_SIZE_ROUND(program->alone.peak_reserved, 2),
               LOCHI_SIZE_ROUND(program->limit_bytes, 2), compute);
    }
    putchar('\n');
}

static void report_saved(const fleet_result *results)
{
    const uint64_t without = results[0].devices, with = results[1].devices;
    if (with < without)
        printf("\nSharing saves %" PRIu64 " of %" PRIu64 " devices (%.1f %%).\n", without - with, without,
               100 * report_part((double)(without - with), (double)without));
    else
        printf("\nSharing saves no device.\n");
}

void fleet_report_text(const fleet_question *question, const fleet_result *results, size_t count)
{
    char text[32];
    report_programs(question);
    if (question->is_found)
        printf("goal: %g %% of the requests wait at most %g s, at most %g %% are lost\n\n", 100 * question->quantile,
               question->wait_s, 100 * question->lost);
    printf("%-*s", REPORT_LABEL, question->kind->device);
    for (size_t i = 0; i < count; i++)
        printf("%*s", REPORT_COLUMN, results[i].is_shared ? "devices are shared" : "one program a device");
    putchar('\n');
    for (size_t i = 0; i < sizeof report_rows / sizeof *report_rows; i++) {
        printf("%-*s", REPORT_LABEL, report_rows[i].label);
        for (size_t j = 0; j < count; j++) {
            report_cell(&report_rows[i], &results[j], text);
            printf("%*s", REPORT_COLUMN, text);
        }
        putchar('\n');
    }
    if (count == 2) report_saved(results);
    for (size_t i = 0; i < count && question->is_checked; i++)
        if (!results[i].is_shared)
            printf("\n%" PRIu64 " runs were compared with loch replay, %" PRIu64 " differ.\n",
                   results[i].total.sum.checked, results[i].total.sum.differing);
    printf("\n%s", report_model);
}

/* --- JSON --- */

static void report_json_programs(json_writer *json, const fleet_question *question)
{
    json_open_array(json, "programs");
    for (size_t i = 0; i < question->programs->count; i++) {
        const fleet_program *program = &question->programs->list[i];
        json_open_object(json, NULL);
        json_text(json, "name", program->entry->name);
        json_text(json, "trace", program->entry->path);
        json_real(json, "weight", question->demand->needs[i].weight);
        json_real(json, "compute", (double)program->entry->compute / 1000);
        json_number(json, "duration_ns", program->duration_ns);
        json_number(json, "peak_requested", program->alone.peak_requested);
        json_real(json, "mean_requested", program->mean_requested);
        json_number(json, "peak_reserved", program->alone.peak_reserved);
        if (program->least_bytes) json_number(json, "least_limit", program->least_bytes);
        json_number(json, "limit", program->limit_bytes);
        json_number(json, "driver_ns", program->alone.driver_ns);
        json_close_object(json);
    }
    json_close_array(json);
}

static void report_json_quantiles(json_writer *json, const char *key, const uint64_t *values)
{
    json_open_object(json, key);
    for (size_t i = 0; i < FLEET_QUANTILES; i++) {
        if (values[i] == UINT64_MAX)
            json_text(json, report_quantiles[i].name, "never");
        else
            json_number(json, report_quantiles[i].name, values[i]);
    }
    json_close_object(json);
}

static void report_json_result(json_writer *json, const fleet_question *question, const fleet_result *result)
{
    const fleet_outcome *sum = &result->total.sum;
    json_open_object(json, NULL);
    json_flag(json, "sharing", result->is_shared);
    json_number(json, "devices", result->devices);
    json_number(json, "used_devices", result->used_devices);
    json_number(json, "budget", result->budget_bytes);
    json_real(json, "span_s", result->span_s);
    json_number(json, "requests", result->requests);
    json_number(json, "served", result->done);
    json_number(json, "out_of_memory", sum->killed);
    json_number(json, "devices_out_of_memory", result->total.devices_killing);
    json_number(json, "device_failures", result->device_failures);
    json_number(json, "moved", result->moved);
    json_number(json, "given_up", result->given_up);
    report_json_quantiles(json, "wait_ns", result->waits_ns);
    json_real(json, "busy_share", result->busy);
    json_real(json, "programs_at_a_time", result->together);
    json_real(json, "requested_share", result->asked);
    report_json_quantiles(json, "peak_held", result->held);
    json_number(json, "late_ns", sum->late_ns);
    json_number(json, "events", sum->events);
    json_open_object(json, "driver_calls");
    for (size_t i = 0; i < LOCH_CALL_COUNT; i++)
        if (sum->driver_calls[i]) json_number(json, loch_driver_call_name((loch_driver_call)i), sum->driver_calls[i]);
    json_close_object(json);
    json_number(json, "driver_ns", sum->driver_ns);
    if (question->is_checked && !result->is_shared) {
        json_number(json, "checked", sum->checked);
        json_number(json, "differing", sum->differing);
    }
    json_close_object(json);
}

void fleet_report_json(const fleet_question *question, const fleet_result *results, size_t count)
{
    json_writer json = {.file = stdout};
    json_open_object(&json, NULL);
    json_text(&json, "device", question->kind->device);
    json_number(&json, "device_limit", question->limit_bytes);
    json_number(&json, "seed", question->demand->seed);
    json_text(&json, "memory", "exact: the real pool on simulated devices");
    json_text(&json, "time", "a model: recorded durations, and driver calls as measured on one GPU");
    report_json_programs(&json, question);
    if (question->is_found) {
        json_open_object(&json, "goal");
        json_real(&json, "quantile", question->quantile);
        json_real(&json, "wait_s", question->wait_s);
        json_real(&json, "lost_share", question->lost);
        json_close_object(&json);
    }
    json_open_array(&json, "fleets");
    for (size_t i = 0; i < count; i++)
        report_json_result(&json, question, &results[i]);
    json_close_array(&json);
    if (count == 2) json_signed(&json, "saved_devices", (int64_t)results[0].devices - (int64_t)results[1].devices);
    json_close_object(&json);
}
