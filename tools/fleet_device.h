/* SPDX-License-Identifier: MIT */
/* Runs the stints of one device of a fleet: real pools on a simulated device. */
#ifndef LOCH_TOOL_FLEET_DEVICE_H
#define LOCH_TOOL_FLEET_DEVICE_H

#include "fleet_plan.h"
#include "fleet_program.h"

/* What to run. Shared by all devices, and not written. */
typedef struct fleet_work {
    const fleet_kind *kind;
    const fleet_program *programs;
    const fleet_plan *plan;
    uint64_t limit_bytes; /* of all programs on a device together; 0: the device's memory */
    bool is_shared;       /* programs are children of one pool; else each has a pool of its own */
    bool is_checked;      /* stints that ran alone to their end are compared with fleet_program.alone */
} fleet_work;

/* What happened on one device. */
typedef struct fleet_outcome {
    uint64_t events;    /* of traces: allocations, frees, uses */
    uint64_t stints;    /* that were started */
    uint64_t cut;       /* stints that the failure of the device ended */
    uint64_t killed;    /* stints that ended because memory was refused */
    uint64_t checked;   /* stints that were compared with a replay */
    uint64_t differing; /* stints that were not equal to it */
    uint64_t peak_held; /* most bytes taken from the device */
    uint64_t late_ns;   /* time that programs waited on the host for memory, at most */
    uint64_t driver_ns; /* modelled */
    uint64_t driver_calls[LOCH_CALL_COUNT];
    loch_status status;                     /* other than LOCH_OK: the simulation itself failed */
    char sentence[LOCH_ERROR_SENTENCE_MAX]; /* why it failed, or the first difference, or the first refusal */
} fleet_outcome;

/* Runs device number `number` from its first stint to its last. Memory is freed before it returns. */
void fleet_device_run(const fleet_work *work, size_t number, fleet_outcome *out);

/* Tells whether a program runs on a device of its own while its pool holds at most `limit_bytes`. */
loch_status fleet_device_try(const fleet_kind *kind, const fleet_program *program, uint64_t limit_bytes,
                             bool *out_fits);

#endif
