/* SPDX-License-Identifier: MIT */
/* The encoder on the CPU. A batch is cut into slices of whole sentences; each worker takes a slice through all layers
 * by itself, so threads wait for each other only at the end of the batch.
 *
 * A worker has one workspace of the pool, as large as its largest slice so far:
 *
 *     x      rows by WIDTH   what passes from layer to layer
 *     y      rows by WIDTH   results of attention, and sums before a norm
 *     wide   rows by MLP     query, key and value; then the middle of the two-layer network
 *     keys   CPU_SCRATCH     of attention */
#include "blas.h"
#include "encoder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLICE_ROWS = 512 }; /* products reach their speed, and a slice stays in the cache of a core */

typedef struct cpu_state {
    blas_library blas;
    const cpu_kernels *kernels;
    loch_workers *workers;
    size_t threads;
    loch_workspace **workspaces; /* one for each thread */
} cpu_state;

/* Sentences `first` to `end` of a batch. */
typedef struct cpu_slice {
    embedder_encoder *encoder;
    const token_batch *batch;
    size_t first, end;
    float *vectors; /* of the whole batch */
} cpu_slice;

typedef struct cpu_rows {
    size_t rows;
    float *x, *y, *wide, *scratch;
} cpu_rows;

/* --- one slice --- */

static void attend_slice(const cpu_slice *slice, const cpu_rows *at, size_t layer)
{
    const cpu_state *state = slice->encoder->state;
    const float *const *weights = slice->encoder->model.data + model_index(layer, 0);
    const size_t *starts = slice->batch->starts, origin = starts[slice->first];
    for (size_t i = slice->first; i < slice->end; i++)
        state->kernels->attend(&(cpu_attention){.qkv = at->wide + (starts[i] - origin) * QKV,
                                                .query_bias = weights[QUERY_BIAS],
                                                .key_bias = weights[KEY_BIAS],
                                                .value_bias = weights[VALUE_BIAS],
                                                .length = starts[i + 1] - starts[i],
                                                .scratch = at->scratch,
                                                .mixed = at->y + (starts[i] - origin) * WIDTH});
}

static void run_layer(const cpu_slice *slice, const cpu_rows *at, size_t layer)
{
    const cpu_state *state = slice->encoder->state;
    const cpu_kernels *kernels = state->kernels;
    const float *const *weights = slice->encoder->model.data + model_index(layer, 0);
    blas_multiply(&state->blas, at->x, weights[QUERY], at->rows, WIDTH, WIDTH, at->wide, QKV);
    blas_multiply(&state->blas, at->x, weights[KEY], at->rows, WIDTH, WIDTH, at->wide + WIDTH, QKV);
    blas_multiply(&state->blas, at->x, weights[VALUE], at->rows, WIDTH, WIDTH, at->wide + (size_t)2 * WIDTH, QKV);
    attend_slice(slice, at, layer);
    kernels->add_bias(at->x, weights[OUTPUT_BIAS], at->rows, at->x);
    blas_multiply_add(&state->blas, at->y, weights[OUTPUT], at->rows, WIDTH, WIDTH, at->x, WIDTH);
    kernels->norm(weights[OUTPUT_NORM], weights[OUTPUT_NORM_BIAS], at->rows, at->x);

    blas_multiply(&state->blas, at->x, weights[UP], at->rows, MLP, WIDTH, at->wide, MLP);
    kernels->gelu(weights[UP_BIAS], at->rows, at->wide);
    kernels->add_bias(at->x, weights[DOWN_BIAS], at->rows, at->x);
    blas_multiply_add(&state->blas, at->wide, weights[DOWN], at->rows, WIDTH, MLP, at->x, WIDTH);
    kernels->norm(weights[DOWN_NORM], weights[DOWN_NORM_BIAS], at->rows, at->x);
}

static void run_rows(const cpu_slice *slice, const cpu_rows *at)
{
    const embedder_encoder *encoder = slice->encoder;
    const cpu_kernels *kernels = ((const cpu_state *)encoder->state)->kernels;
    const size_t *starts = slice->batch->starts, origin = starts[slice->first];
    for (size_t i = slice->first; i < slice->end; i++)
        kernels->embed(&encoder->model, slice->batch->tokens + starts[i], starts[i + 1] - starts[i],
                       at->x + (starts[i] - origin) * WIDTH);
    for (size_t layer = 0; layer < LAYERS; layer++)
        run_layer(slice, at, layer);
    for (size_t i = slice->first; i < slice->end; i++)
        kernels->pool(at->x + (starts[i] - origin) * WIDTH, starts[i + 1] - starts[i], slice->vectors + i * WIDTH);
}

/* The task of a worker. */
static loch_status run_slice(void *user)
{
    const cpu_slice *slice = user;
    const cpu_state *state = slice->encoder->state;
    cpu_rows at = {.rows = slice->batch->starts[slice->end] - slice->batch->starts[slice->first]};
    LOCH_AUTO(buffer) memory = NULL;
    const size_t floats = at.rows * (2 * WIDTH + MLP) + CPU_SCRATCH;
    LOCH_RETURN(loch_workspace_acquire(state->workspaces[loch_workers_get_current(state->workers)],
                                       floats * sizeof(float), &memory));
    at.x = loch_buffer_get_address(memory);
    at.y = at.x + at.rows * WIDTH;
    at.wide = at.y + at.rows * WIDTH;
    at.scratch = at.wide + at.rows * MLP;
    run_rows(slice, &at);
    return LOCH_OK;
}

/* --- a batch --- */

/* Returns the number of slices: a multiple of the threads, with SLICE_ROWS at most on average. */
static size_t count_slices(const cpu_state *state, const token_batch *batch)
{
    const size_t rows = batch->starts[batch->count], share = state->threads * (size_t)SLICE_ROWS;
    const size_t wanted = (rows + share - 1) / share * state->threads;
    return wanted < batch->count ? wanted : batch->count;
}

static loch_status run_slices(embedder_encoder *encoder, const token_batch *batch, float *vectors, cpu_slice *slices,
                              size_t count)
{
    const cpu_state *state = encoder->state;
    const size_t rows = batch->starts[batch->count];
    loch_status status = LOCH_OK;
    for (size_t i = 0, first = 0, end = 0; i < count && status == LOCH_OK; i++, first = end) {
        const size_t goal = rows * (i + 1) / count;
        while (end < batch->count && (batch->starts[end] + batch->starts[end + 1]) / 2 < goal)
            end++;
        if (i + 1 == count) end = batch->count;
        if (first == end) continue;
        slices[i] = (cpu_slice){encoder, batch, first, end, vectors};
        status = loch_workers_run(state->workers, run_slice, &slices[i], NULL);
    }
    const loch_status ran = loch_workers_wait(state->workers, NULL);
    return status == LOCH_OK ? ran : status;
}

static loch_status cpu_run(embedder_encoder *encoder, const token_batch *batch, float *vectors)
{
    const size_t count = count_slices(encoder->state, batch);
    cpu_slice *slices = calloc(count, sizeof *slices);
    if (!slices) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for %zu slices of a batch", count);
    const loch_status status = run_slices(encoder, batch, vectors, slices, count);
    free(slices);
    return status;
}

/* --- open and close --- */

static loch_status open_state(embedder_encoder *encoder, cpu_state *state, const encoder_options *options)
{
    loch_tag tag;
    if (options->dtype != LOCH_F32)
        return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "the CPU computes in f32, not in %s",
                              loch_dtype_name(options->dtype));
    if (strcmp(options->device, "cpu") != 0)
        return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0,
                              "the embedder computes on cpu and cuda devices, not on %.60s", options->device);
    state->kernels = cpu_kernels_get();
    LOCH_RETURN(blas_open(options->blas, state->kernels, &state->blas));
    state->threads = options->threads ? options->threads : 1;
    LOCH_RETURN(loch_workers_open(
        &(loch_workers_options){.size = sizeof(loch_workers_options), .name = "encode", .threads = state->threads},
        &state->workers));
    state->workspaces = calloc(state->threads, sizeof(loch_workspace *));
    if (!state->workspaces) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for workspaces");
    LOCH_RETURN(loch_tag_create("activations", &tag));
    for (size_t i = 0; i < state->threads; i++)
        LOCH_RETURN(loch_workspace_create(encoder->pool, NULL,
                                          &(loch_request){.size = sizeof(loch_request), .alignment = 64, .tag = tag},
                                          &state->workspaces[i]));
    snprintf(encoder->text, sizeof encoder->text, "%zu threads, %.60s, kernels for %s", state->threads,
             state->blas.name, state->kernels->name);
    return LOCH_OK;
}

static loch_status cpu_open(embedder_encoder *encoder, const encoder_options *options)
{
    encoder->state = calloc(1, sizeof(cpu_state));
    if (!encoder->state) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for an encoder");
    return open_state(encoder, encoder->state, options);
}

static void cpu_close(embedder_encoder *encoder)
{
    cpu_state *state = encoder->state;
    if (loch_workers_close(state->workers, LOCH_WORKERS_DRAIN, NULL) != LOCH_OK)
        fprintf(stderr, "embedder: %s\n", loch_error_get()->sentence);
    for (size_t i = 0; state->workspaces && i < state->threads; i++)
        loch_workspace_destroy(state->workspaces[i]);
    free(state->workspaces);
    free(state);
}

const encoder_engine encoder_cpu = {.open = cpu_open, .run = cpu_run, .close = cpu_close};
