/* SPDX-License-Identifier: MIT */
/* Devices are independent once the plan is made: each thread takes the next device that nobody has taken. Outcomes are
 * stored by device and added up in order of devices, so the sum does not depend on the threads. */
#include "fleet_run.h"
#include "tool.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

typedef struct run_state {
    const fleet_work *work;
    fleet_outcome *outcomes;
    atomic_size_t next, done;
    atomic_bool has_failed; /* no further device is taken */
} run_state;

static void run_devices(run_state *state, tool_progress *progress)
{
    const size_t count = state->work->plan->devices;
    size_t device;
    while (!atomic_load(&state->has_failed) && (device = atomic_fetch_add(&state->next, 1)) < count) {
        if (state->work->plan->first[device] != FLEET_NO_STINT) {
            fleet_device_run(state->work, device, &state->outcomes[device]);
            if (state->outcomes[device].status != LOCH_OK) atomic_store(&state->has_failed, true);
        }
        const size_t done = atomic_fetch_add(&state->done, 1) + 1;
        if (progress) tool_progress_show(progress, done);
    }
}

static void *run_thread(void *user)
{
    run_devices(user, NULL);
    return NULL;
}

/* The calling thread works, too. Fewer threads than asked for do the same work. */
static void run_threads(run_state *state, size_t threads)
{
    pthread_t *others = calloc(threads, sizeof *others);
    size_t started = 0;
    while (others && started + 1 < threads && pthread_create(&others[started], NULL, run_thread, state) == 0)
        started++;
    tool_progress progress = {.label = "devices", .total = state->work->plan->devices};
    run_devices(state, tool_progress_is_wanted() ? &progress : NULL);
    for (size_t i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    tool_progress_end(&progress);
    free(others);
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

loch_status fleet_run(const fleet_work *work, size_t threads, fleet_total *out)
{
    const size_t devices = work->plan->devices;
    run_state state = {.work = work, .outcomes = calloc(devices, sizeof *state.outcomes)};
    *out = (fleet_total){.held = calloc(devices, sizeof *out->held)};
    if (!state.outcomes || !out->held) {
        free(state.outcomes);
        return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "there is no host memory for %zu devices", devices);
    }
    const uint64_t start_ns = loch_host_now_ns();
    run_threads(&state, threads);
    out->elapsed_ns = loch_host_now_ns() - start_ns;
    for (size_t i = 0; i < devices; i++)
        run_add(out, &state.outcomes[i]);
    fleet_sort(out->held, out->held_count);
    free(state.outcomes);
    if (out->sum.status == LOCH_OK) return LOCH_OK;
    return loch_error_set(out->sum.status, NULL, 0, "%s", out->sum.sentence);
}

void fleet_total_free(fleet_total *total)
{
    free(total->held);
    *total = (fleet_total){.held = NULL};
}
