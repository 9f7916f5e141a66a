/* SPDX-License-Identifier: MIT */
/* Programs of a fleet: recordings that are read once, shared by all devices, and never written. */
#ifndef LOCH_TOOL_FLEET_PROGRAM_H
#define LOCH_TOOL_FLEET_PROGRAM_H

#include "fleet_mix.h"
#include "replay.h"

/* What a program did on a device of its own. */
typedef struct fleet_figures {
    uint64_t peak_requested, peak_reserved;
    uint64_t driver_calls[LOCH_CALL_COUNT];
    uint64_t driver_ns; /* by the device's table of costs */
} fleet_figures;

typedef struct fleet_program {
    const fleet_entry *entry;
    trace_log trace;
    lochi_array events; /* those of the trace, with the clock between them (trace_add_clock) */
    uint64_t duration_ns;
    double mean_requested; /* bytes that the program asks for, on average over its time */
    fleet_figures alone;   /* as `loch replay` measures it */
    uint64_t least_bytes;  /* least limit with which it runs; 0: not looked for */
    uint64_t limit_bytes;  /* that it has when it shares a device */
} fleet_program;

/* The devices of a fleet are alike. */
typedef struct fleet_kind {
    const char *device; /* name without an id */
    uint64_t lag_ns;    /* of queued work */
    uint64_t total_bytes, granule_bytes;
} fleet_kind;

/* Opens device number `number` of a fleet. */
loch_status fleet_kind_open(const fleet_kind *kind, uint64_t number, loch_device **out);

/* Checks the name of the devices and reads their properties. E_INVALID: not a simulated device, or its name has options
 * that a fleet sets. */
loch_status fleet_kind_read(fleet_kind *kind);

/* Reads the trace of an entry. Returns false after a line on standard error. */
bool fleet_program_load(fleet_program *program, const fleet_entry *entry);

/* Runs the program by the code of `loch replay` on a device of its own. E_DEVICE_MEMORY: the program does not fit on
 * such a device. */
loch_status fleet_program_measure(const fleet_program *program, const fleet_kind *kind, fleet_figures *out);

/* Looks for the least limit with which the program runs on a device of its own. `alone` is what it does without one. */
loch_status fleet_program_fit(const fleet_program *program, const fleet_kind *kind, const fleet_figures *alone,
                              uint64_t *out_bytes);

/* Prints the first difference of two runs to `text`. Returns false if they are equal. */
bool fleet_figures_differ(const fleet_figures *got, const fleet_figures *expected, char *text, size_t bytes);

/* Drops what is not needed to run the program again. */
void fleet_program_shrink(fleet_program *program);

void fleet_program_unload(fleet_program *program);

#endif
