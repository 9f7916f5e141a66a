/* SPDX-License-Identifier: MIT */
#include "fleet_programs.h"
#include "fleet_workers.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What one program was measured to be; in memory that the processes share. */
typedef struct measure_result {
    fleet_figures alone;
    uint64_t least_bytes;
    loch_status status;
    char sentence[LOCH_ERROR_SENTENCE_MAX];
} measure_result;

typedef struct measure_state {
    const fleet_programs *programs;
    const fleet_kind *kind;
    fleet_fit fit;
    measure_result *results;
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

static bool measure_program(size_t number, void *user)
{
    const measure_state *state = user;
    const fleet_program *program = &state->programs->list[number];
    measure_result *result = &state->results[number];
    result->status = fleet_program_measure(program, state->kind, &result->alone);
    if (result->status == LOCH_OK && state->fit == FLEET_FIT_LEAST && !program->entry->limit_bytes)
        result->status = fleet_program_fit(program, state->kind, &result->alone, &result->least_bytes);
    if (result->status != LOCH_OK)
        snprintf(result->sentence, sizeof result->sentence, "%s", loch_error_get()->sentence);
    return result->status == LOCH_OK;
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

int fleet_programs_measure(fleet_programs *programs, const fleet_kind *kind, fleet_fit fit, size_t workers)
{
    const size_t bytes = programs->count * sizeof(measure_result);
    measure_state state = {programs, kind, fit, fleet_shared_alloc(bytes)};
    fleet_effort effort;
    int code = TOOL_DONE;
    if (!state.results) return tool_fail("there is no memory for the programs");
    const loch_status status =
        fleet_workers_run(workers, programs->count, "measuring", measure_program, &state, &effort);
    for (size_t i = 0; i < programs->count && code == TOOL_DONE; i++) {
        fleet_program *program = &programs->list[i];
        if (state.results[i].status != LOCH_OK) code = tool_fail("%s", state.results[i].sentence);
        program->alone = state.results[i].alone;
        program->least_bytes = state.results[i].least_bytes;
        measure_set_limit(program, kind);
        fleet_program_shrink(program);
    }
    if (code == TOOL_DONE && status != LOCH_OK) code = tool_fail_status(status);
    fleet_shared_free(state.results, bytes);
    return code;
}

void fleet_programs_free(fleet_programs *programs)
{
    for (size_t i = 0; i < programs->count; i++)
        fleet_program_unload(&programs->list[i]);
    free(programs->list);
    *programs = (fleet_programs){.list = NULL};
}
