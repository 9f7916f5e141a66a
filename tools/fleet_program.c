/* SPDX-License-Identifier: MIT */
#include "fleet_program.h"
#include "fleet_device.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PROGRAM_CLOCK_STEP_US 100                          /* that of `loch replay` */
#define PROGRAM_DURATION_MAX (UINT64_C(366) * 86400000000) /* microseconds: a year */
#define PROGRAM_FIT_PART 512                               /* the least limit is exact to this part of it */

/* --- devices --- */

loch_status fleet_kind_open(const fleet_kind *kind, uint64_t number, loch_device **out)
{
    char name[LOCH_DEVICE_NAME_MAX];
    *out = NULL;
    const int length = snprintf(name, sizeof name, "%s,id=%" PRIu64, kind->device, number + 1);
    if (length < 0 || (size_t)length >= sizeof name)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "the name of the device is too long");
    return replay_open_device(name, kind->lag_ns, out);
}

loch_status fleet_kind_read(fleet_kind *kind)
{
    static const char *const set[] = {",id=", ",clock=", ",backed"};
    loch_device_properties properties = {.size = sizeof properties};
    loch_device *device;
    if (strncmp(kind->device, "sim:", 4) != 0)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "a fleet has simulated devices, and %s is not simulated",
                              kind->device);
    for (size_t i = 0; i < sizeof set / sizeof *set; i++)
        if (strstr(kind->device, set[i]))
            return loch_error_set(LOCH_E_INVALID, NULL, 0, "a device of a fleet cannot have the option %s", set[i] + 1);
    loch_status status = fleet_kind_open(kind, 0, &device);
    if (status != LOCH_OK) return status;
    status = loch_device_get_properties(device, &properties);
    loch_device_release(device);
    kind->total_bytes = properties.total_bytes;
    kind->granule_bytes = properties.granule_bytes ? properties.granule_bytes : (size_t)2 << 20;
    return status;
}

/* --- traces --- */

/* Returns the bytes asked for, on average over the time of the trace. */
static double program_mean(const trace_log *trace, uint64_t *sizes)
{
    const trace_event *events = trace_events(trace);
    const trace_special *specials = trace->specials.data;
    const uint64_t *times_us = trace->times_us.data;
    uint64_t held = 0, last_us = 0;
    double sum = 0;
    for (size_t i = 0; i < trace->events.count; i++) {
        sum += (double)held * (double)(times_us[i] - last_us);
        last_us = times_us[i];
        if (events[i].kind == TRACE_USE) continue;
        if (events[i].kind == TRACE_RESIZE) held -= sizes[events[i].slot];
        if (events[i].kind == TRACE_ALLOC)
            sizes[events[i].slot] = events[i].bytes;
        else if (events[i].kind == TRACE_ALLOC_SPECIAL || events[i].kind == TRACE_RESIZE)
            sizes[events[i].slot] = specials[events[i].bytes].bytes;
        if (events[i].kind == TRACE_FREE || events[i].kind == TRACE_FREE_ON)
            held -= sizes[events[i].slot];
        else
            held += sizes[events[i].slot];
    }
    sum += (double)held * (double)(trace->duration_us - last_us);
    return trace->duration_us ? sum / (double)trace->duration_us : 0;
}

bool fleet_program_load(fleet_program *program, const fleet_entry *entry)
{
    lochi_array sizes = {.data = NULL};
    *program = (fleet_program){.entry = entry, .limit_bytes = entry->limit_bytes};
    if (!trace_load(&program->trace, entry->path)) return false;
    if (program->trace.duration_us > PROGRAM_DURATION_MAX) {
        tool_fail("%s: the program runs for longer than a year", entry->path);
        return false;
    }
    if (!lochi_array_reserve(&sizes, program->trace.slots + 1, sizeof(uint64_t)) ||
        !trace_add_clock(&program->trace, PROGRAM_CLOCK_STEP_US, &program->events)) {
        lochi_array_free(&sizes);
        tool_fail("%s: no memory for the trace", entry->path);
        return false;
    }
    program->duration_ns = 1000 * program->trace.duration_us;
    program->mean_requested = program_mean(&program->trace, sizes.data);
    lochi_array_free(&sizes);
    return true;
}

void fleet_program_shrink(fleet_program *program)
{
    lochi_array_free(&program->trace.events);
    lochi_array_free(&program->trace.times_us);
}

void fleet_program_unload(fleet_program *program)
{
    trace_unload(&program->trace);
    lochi_array_free(&program->events);
}

/* --- alone on a device --- */

loch_status fleet_program_measure(const fleet_program *program, const fleet_kind *kind, fleet_figures *out)
{
    replay_kept kept = {.allocator = NULL};
    replay_setup setup = {.trace = &program->trace, .allocator = "pool", .kept = &kept};
    replay_result result = {.failures = 0};
    loch_status status = replay_open_device(kind->device, kind->lag_ns, &setup.device);
    if (status == LOCH_OK) status = replay_run(&setup, &result);
    replay_end(&kept);
    loch_device_release(setup.device);
    *out = (fleet_figures){.peak_requested = program->trace.peak_requested,
                           .peak_reserved = result.peak_reserved,
                           .driver_ns = result.driver_ns};
    memcpy(out->driver_calls, result.driver_calls, sizeof result.driver_calls);
    if (status != LOCH_OK || !result.failures) return status;
    return loch_error_set(LOCH_E_DEVICE_MEMORY, NULL, 0, "%s does not fit on %s: it asks for %s, the device has %s",
                          program->entry->name, kind->device, LOCHI_SIZE_ROUND(program->trace.peak_requested, 2),
                          LOCHI_SIZE_ROUND(kind->total_bytes, 2));
}

/* Bisects between the bytes that the program asks for and those that the pool holds without a limit. */
loch_status fleet_program_fit(const fleet_program *program, const fleet_kind *kind, const fleet_figures *alone,
                              uint64_t *out_bytes)
{
    const uint64_t unit = kind->granule_bytes;
    uint64_t enough = (alone->peak_reserved + unit - 1) / unit;
    uint64_t little = alone->peak_requested / unit; /* may be enough; the bisection ends above it */
    if (little) little--;
    while (enough > little + 1 && (enough - little) * PROGRAM_FIT_PART > enough) {
        const uint64_t middle = little + (enough - little) / 2;
        bool fits;
        const loch_status status = fleet_device_try(kind, program, middle * unit, &fits);
        if (status != LOCH_OK) return status;
        if (fits)
            enough = middle;
        else
            little = middle;
    }
    *out_bytes = enough * unit;
    return LOCH_OK;
}

bool fleet_figures_differ(const fleet_figures *got, const fleet_figures *expected, char *text, size_t bytes)
{
    const struct {
        const char *name;
        uint64_t got, expected;
    } rows[] = {{"peak_requested", got->peak_requested, expected->peak_requested},
                {"peak_reserved", got->peak_reserved, expected->peak_reserved},
                {"driver_ns", got->driver_ns, expected->driver_ns}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].got == rows[i].expected) continue;
        snprintf(text, bytes, "%s is %" PRIu64 " and not %" PRIu64, rows[i].name, rows[i].got, rows[i].expected);
        return true;
    }
    for (size_t i = 0; i < LOCH_CALL_COUNT; i++) {
        if (got->driver_calls[i] == expected->driver_calls[i]) continue;
        snprintf(text, bytes, "there are %" PRIu64 " calls of %s and not %" PRIu64, got->driver_calls[i],
                 loch_driver_call_name((loch_driver_call)i), expected->driver_calls[i]);
        return true;
    }
    return false;
}
