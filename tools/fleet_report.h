/* SPDX-License-Identifier: MIT */
/* Prints what `loch fleet` has found. */
#ifndef LOCH_TOOL_FLEET_REPORT_H
#define LOCH_TOOL_FLEET_REPORT_H

#include "fleet_programs.h"
#include "fleet_run.h"

/* Quantiles that are printed of waits and of held memory. */
#define FLEET_QUANTILES 4

/* One fleet that was simulated. */
typedef struct fleet_result {
    bool is_shared;
    uint64_t budget_bytes; /* that programs on one device may need together */
    uint64_t devices, used_devices;
    uint64_t requests, done, moved, given_up, device_failures;
    uint64_t waits_ns[FLEET_QUANTILES];   /* UINT64_MAX: of a request that never ended */
    uint64_t held[FLEET_QUANTILES];       /* highest moments of the devices that ran something */
    double span_s, busy, together, asked; /* busy: part of the devices' time; together: programs on a busy device;
                                             asked: part of all memory, on average */
    fleet_total total;
} fleet_result;

/* What was asked. */
typedef struct fleet_question {
    const fleet_kind *kind;
    const fleet_programs *programs;
    const fleet_demand *demand;
    uint64_t limit_bytes;          /* of a device */
    bool is_checked, is_found;     /* is_found: the numbers of devices were looked for */
    double quantile, wait_s, lost; /* the goal, if they were looked for */
} fleet_question;

/* Computes the figures of a plan and of its run. Returns false if there is no memory. */
bool fleet_result_fill(fleet_result *result, const fleet_question *question, const fleet_plan *plan);

/* Returns the part of the requests that were lost: by refused memory, or with their devices. */
double fleet_result_lost(const fleet_result *result);

/* Prints one result, or two: without and with sharing. */
void fleet_report_text(const fleet_question *question, const fleet_result *results, size_t count);
void fleet_report_json(const fleet_question *question, const fleet_result *results, size_t count);

#endif
