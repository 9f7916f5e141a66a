/* SPDX-License-Identifier: MIT */
#include "fleet_programs.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct measure_result {
    loch_status status;
    char sentence[256];
} measure_result;

typedef struct measure_state {
    fleet_programs *programs;
    const fleet_kind *kind;
    fleet_fit fit;
    measure_result *results; /* of each program: the error record belongs to the thread */
    atomic_size_t next, done;
} measure_state;

int fleet_programs_load(fleet_programs *programs, const fleet_mix *mix)
{
    *programs = (fleet_programs){.list = calloc(mix->count, sizeof *programs->list)};
    if (!programs->list) return tool_fail("there is no memory for the programs");
    for (; programs->count < mix->count; programs->count++)
        if (!fleet_program_load(&programs->list[programs->count], &mix->entries[programs->count])) {
            programs->count++; /* half loaded */
            return TOOL_FAILED;
        }
    return TOOL_DONE;
}

static void measure_programs(measure_state *state, tool_progress *progress)
{
    size_t i;
    while ((i = atomic_fetch_add(&state->next, 1)) < state->programs->count) {
        fleet_program *program = &state->programs->list[i];
        measure_result *result = &state->results[i];
        result->status = fleet_program_measure(program, state->kind, i);
        if (result->status == LOCH_OK && state->fit == FLEET_FIT_LEAST && !program->limit_bytes)
            result->status = fleet_program_fit(program, state->kind, i);
        if (result->status != LOCH_OK)
            snprintf(result->sentence, sizeof result->sentence, "%s", loch_error_get()->sentence);
        fleet_program_shrink(program);
        const size_t done = atomic_fetch_add(&state->done, 1) + 1;
        if (progress) tool_progress_show(progress, done);
    }
}

static void *measure_thread(void *user)
{
    measure_programs(user, NULL);
    return NULL;
}

/* Limits are whole granules: a pool holds nothing smaller. */
static void measure_set_limit(fleet_program *program, const fleet_kind *kind)
{
    const uint64_t unit = kind->granule_bytes;
    if (!program->limit_bytes) program->limit_bytes = program->least_bytes;
    if (!program->limit_bytes) program->limit_bytes = program->alone.peak_reserved;
    program->limit_bytes = (program->limit_bytes + unit - 1) / unit * unit;
    if (!program->limit_bytes) program->limit_bytes = unit; /* a program without memory; 0 means no limit */
}

int fleet_programs_measure(fleet_programs *programs, const fleet_kind *kind, fleet_fit fit, size_t threads)
{
    measure_state state = {.programs = programs, .kind = kind, .fit = fit};
    pthread_t others[FLEET_PROGRAMS_MAX];
    size_t started = 0;
    int code = TOOL_DONE;
    state.results = calloc(programs->count + 1, sizeof *state.results); /* never of 0 bytes */
    if (!state.results) return tool_fail("there is no memory for the programs");
    while (started + 1 < threads && started + 1 < programs->count &&
           pthread_create(&others[started], NULL, measure_thread, &state) == 0)
        started++;
    tool_progress progress = {.label = "measuring", .total = programs->count};
    measure_programs(&state, tool_progress_is_wanted() ? &progress : NULL);
    for (size_t i = 0; i < started; i++)
        pthread_join(others[i], NULL);
    tool_progress_end(&progress);
    for (size_t i = 0; i < programs->count && code == TOOL_DONE; i++) {
        if (state.results[i].status != LOCH_OK) code = tool_fail("%s", state.results[i].sentence);
        measure_set_limit(&programs->list[i], kind);
    }
    free(state.results);
    return code;
}

void fleet_programs_free(fleet_programs *programs)
{
    for (size_t i = 0; i < programs->count; i++)
        fleet_program_unload(&programs->list[i]);
    free(programs->list);
    *programs = (fleet_programs){.list = NULL};
}
