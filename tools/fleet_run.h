/* SPDX-License-Identifier: MIT */
/* Runs all devices of a fleet in several processes, and adds up what happened. */
#ifndef LOCH_TOOL_FLEET_RUN_H
#define LOCH_TOOL_FLEET_RUN_H

#include "fleet_device.h"
#include "fleet_workers.h"

/* Sums over all devices. Equal for any number of processes. */
typedef struct fleet_total {
    fleet_outcome sum;      /* peak_held and late_ns: the largest; sentence: of the first device that has one */
    size_t devices_killing; /* devices that refused memory */
    uint64_t *held;         /* bytes held at the highest moment of each device that ran something, sorted */
    size_t held_count;
    fleet_effort effort; /* differs from run to run */
} fleet_total;

/* Runs the devices. A process takes one device after the other. Call fleet_total_free in either case. */
loch_status fleet_run(const fleet_work *work, size_t workers, fleet_total *out);

void fleet_total_free(fleet_total *total);

#endif
