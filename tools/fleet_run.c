/* SPDX-License-Identifier: MIT */
/* Devices are independent once the plan is made. Outcomes are stored by device and added up in order of devices, so the
 * sum does not depend on which process ran which device. */
#include "fleet_run.h"
#include <stdlib.h>
#include <string.h>

typedef struct run_state {
    const fleet_work *work;
    fleet_outcome *outcomes; /* shared with the other processes */
} run_state;

static bool run_device(size_t device, void *user)
{
    const run_state *state = user;
    if (state->work->plan->first[device] == FLEET_NO_STINT) return true;
    fleet_device_run(state->work, device, &state->outcomes[device]);
    return state->outcomes[device].status == LOCH_OK;
}

static void run_add(fleet_total *total, const fleet_outcome *outcome)
{
    fleet_outcome *sum = &total->sum;
    if (sum->status == LOCH_OK && outcome->status != LOCH_OK) {
        sum->status = outcome->status;
        memcpy(sum->sentence, outcome->sentence, sizeof sum->sentence);
    }
    if (!*sum->sentence) memcpy(sum->sentence, outcome->sentence, sizeof sum->sentence);
    sum->events += outcome->events;
    sum->stints += outcome->stints;
    sum->cut += outcome->cut;
    sum->killed += outcome->killed;
    sum->checked += outcome->checked;
    sum->differing += outcome->differing;
    sum->driver_ns += outcome->driver_ns;
    for (size_t i = 0; i < LOCH_CALL_COUNT; i++)
        sum->driver_calls[i] += outcome->driver_calls[i];
    if (outcome->peak_held > sum->peak_held) sum->peak_held = outcome->peak_held;
    if (outcome->late_ns > sum->late_ns) sum->late_ns = outcome->late_ns;
    total->devices_killing += outcome->killed > 0;
    if (outcome->stints) total->held[total->held_count++] = outcome->peak_held;
}

loch_status fleet_run(const fleet_work *work, size_t workers, fleet_total *out)
{
    const size_t devices = work->plan->devices, bytes = devices * sizeof(fleet_outcome);
    run_state state = {.work = work, .outcomes = fleet_shared_alloc(bytes)};
    *out = (fleet_total){.held = calloc(devices, sizeof *out->held)};
    if (!state.outcomes || !out->held) {
        fleet_shared_free(state.outcomes, bytes);
        return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "there is no host memory for %zu devices", devices);
    }
    const loch_status status = fleet_workers_run(workers, devices, "devices", run_device, &state, &out->effort);
    for (size_t i = 0; i < devices; i++)
        run_add(out, &state.outcomes[i]);
    fleet_sort(out->held, out->held_count);
    fleet_shared_free(state.outcomes, bytes);
    if (status != LOCH_OK || out->sum.status == LOCH_OK) return status;
    return loch_error_set(out->sum.status, NULL, 0, "%s", out->sum.sentence);
}

void fleet_total_free(fleet_total *total)
{
    free(total->held);
    *total = (fleet_total){.held = NULL};
}
