/* SPDX-License-Identifier: MIT */
/* All programs of a mix: read, measured, and given their limits. */
#ifndef LOCH_TOOL_FLEET_PROGRAMS_H
#define LOCH_TOOL_FLEET_PROGRAMS_H

#include "fleet_program.h"

/* Which limit a program has when it shares a device, unless the mix says it. */
typedef enum fleet_fit {
    FLEET_FIT_ALONE, /* what it holds when it has a device to itself */
    FLEET_FIT_LEAST  /* the least with which it still runs */
} fleet_fit;

typedef struct fleet_programs {
    fleet_program *list;
    size_t count;
} fleet_programs;

/* Reads all traces of a mix. Returns a TOOL_ code, after a line on standard error if it failed. Call
 * fleet_programs_free in either case. */
int fleet_programs_load(fleet_programs *programs, const fleet_mix *mix);

/* Measures all programs in several processes, and sets their limits. */
int fleet_programs_measure(fleet_programs *programs, const fleet_kind *kind, fleet_fit fit, size_t workers);

void fleet_programs_free(fleet_programs *programs);

#endif
