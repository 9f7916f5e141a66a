/* SPDX-License-Identifier: MIT */
/* The encoder on a CUDA device: one stream, products by cuBLAS, kernels of kernels.cu. Nothing waits on the host
 * between the upload of the tokens and the vectors.
 *
 * Memory of the pool: frozen weights, the workspace of cuBLAS, and one workspace as large as the largest batch so far:
 *
 *     numbers   tokens, places in the sentence, starts of the sentences
 *     x, y      rows by WIDTH
 *     wide      rows by MLP: query, key and value; then the middle of the two-layer network
 *     vectors   sentences by WIDTH, f32
 *
 * Tokens and vectors pass through a workspace of pinned host memory. */
#include "cuda.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* kernels.ptx, as it is. */
__asm__(".section .rodata\n"
        ".balign 16\n"
        "embedder_ptx: .incbin \"" EMBEDDER_PTX "\"\n"
        "embedder_ptx_end: .byte 0\n"
        ".previous\n");
extern const char embedder_ptx[], embedder_ptx_end[];

enum { SENTENCES_MAX = 65535 }; /* of one launch */

typedef struct cuda_state {
    loch_dtype dtype;
    loch_stream *stream;
    loch_allocator *pinned;
    loch_workspace *workspace, *staging;
    loch_module *module;
    loch_kernel *embed, *attend, *join, *gelu, *pool;
    cuda_product *product;
    cuda_weights weights;
} cuda_state;

/* One batch: sizes, and addresses in the workspace. */
typedef struct cuda_run {
    const cuda_state *state;
    size_t rows, count, longest;
    int32_t *tokens, *places, *starts;
    void *x, *y, *wide;
    float *vectors;
} cuda_run;

/* --- launches --- */

static loch_argument number(size_t value)
{
    return loch_argument_scalar(LOCH_I32, loch_scalar_of((int64_t)value));
}

static loch_status launch(const cuda_run *run, loch_kernel *kernel, const loch_argument *arguments, size_t count,
                          const size_t grid[3], size_t threads)
{
    const loch_launch_options options = {.size = sizeof options,
                                         .grid = {(uint32_t)grid[0], (uint32_t)grid[1], (uint32_t)grid[2]},
                                         .block = {(uint32_t)threads, 1, 1}};
    return loch_kernel_launch(kernel, arguments, count, run->state->stream, &options);
}

#define LAUNCH(run, kernel, threads, grid_x, grid_y, grid_z, ...)                                                      \
    launch((run), (kernel), (const loch_argument[]){__VA_ARGS__},                                                      \
           sizeof((const loch_argument[]){__VA_ARGS__}) / sizeof(loch_argument),                                       \
           (const size_t[]){(grid_x), (grid_y), (grid_z)}, (threads))

/* x = norm(x + y + added) */
static loch_status join(const cuda_run *run, const void *y, loch_tensor *added, loch_tensor *norm,
                        loch_tensor *norm_bias)
{
    return LAUNCH(run, run->state->join, 128, (run->rows + 3) / 4, 1, 1, loch_argument_address(run->x),
                  loch_argument_address(y), loch_argument_read(added), number(run->rows), loch_argument_read(norm),
                  loch_argument_read(norm_bias));
}

/* --- one batch --- */

static loch_status run_layer(const cuda_run *run, const cuda_layer *layer)
{
    const cuda_state *state = run->state;
    const size_t rows_of_block = state->dtype == LOCH_F16 ? 64 : 4;
    LOCH_RETURN(cuda_product_run(state->product, run->x, layer->qkv, run->rows, run->wide));
    LOCH_RETURN(LAUNCH(run, state->attend, 128, (run->longest + rows_of_block - 1) / rows_of_block, HEADS, run->count,
                       loch_argument_address(run->wide), loch_argument_read(layer->qkv_bias),
                       loch_argument_address(run->starts), loch_argument_address(run->y)));
    /* The product needs another place for its result than for its input. */
    LOCH_RETURN(cuda_product_run(state->product, run->y, layer->output, run->rows, run->wide));
    LOCH_RETURN(join(run, run->wide, layer->output_bias, layer->output_norm, layer->output_norm_bias));

    LOCH_RETURN(cuda_product_run(state->product, run->x, layer->up, run->rows, run->wide));
    LOCH_RETURN(LAUNCH(run, state->gelu, 256, (run->rows * MLP / 4 + 255) / 256, 1, 1, loch_argument_address(run->wide),
                       loch_argument_read(layer->up_bias), number(run->rows)));
    LOCH_RETURN(cuda_product_run(state->product, run->wide, layer->down, run->rows, run->y));
    return join(run, run->y, layer->down_bias, layer->down_norm, layer->down_norm_bias);
}

static loch_status run_rows(const cuda_run *run)
{
    const cuda_state *state = run->state;
    const cuda_weights *weights = &state->weights;
    LOCH_RETURN(LAUNCH(run, state->embed, 128, (run->rows + 3) / 4, 1, 1, loch_argument_address(run->tokens),
                       loch_argument_address(run->places), number(run->rows), loch_argument_read(weights->words),
                       loch_argument_read(weights->places), loch_argument_read(weights->kind),
                       loch_argument_read(weights->norm), loch_argument_read(weights->norm_bias),
                       loch_argument_address(run->x)));
    for (size_t i = 0; i < LAYERS; i++)
        LOCH_RETURN(run_layer(run, &weights->layers[i]));
    return LAUNCH(run, state->pool, WIDTH, run->count, 1, 1, loch_argument_address(run->x),
                  loch_argument_address(run->starts), loch_argument_address(run->vectors));
}

/* Writes tokens, places and starts, as they lie in the workspace. */
static void write_numbers(const token_batch *batch, cuda_run *run, int32_t *to)
{
    int32_t *places = to + run->rows, *starts = to + 2 * run->rows;
    memcpy(to, batch->tokens, run->rows * sizeof *to);
    for (size_t i = 0; i < batch->count; i++) {
        const size_t start = batch->starts[i], length = batch->starts[i + 1] - start;
        starts[i] = (int32_t)start;
        run->longest = length > run->longest ? length : run->longest;
        for (size_t j = 0; j < length; j++)
            places[start + j] = (int32_t)j;
    }
    starts[batch->count] = (int32_t)run->rows;
}

/* Takes the next part of a workspace, aligned for every kernel. */
static void *take(uintptr_t *at, size_t bytes)
{
    void *part = (void *)*at;
    *at += (bytes + 255) & ~(uintptr_t)255;
    return part;
}

/* Sets all addresses in a workspace and returns the bytes that they need. */
static size_t lay_out(cuda_run *run, void *workspace, size_t numbers_bytes)
{
    const size_t element = loch_dtype_bytes(run->state->dtype);
    uintptr_t at = (uintptr_t)workspace;
    run->tokens = take(&at, numbers_bytes);
    run->places = (int32_t *)((uintptr_t)run->tokens + run->rows * sizeof(int32_t));
    run->starts = (int32_t *)((uintptr_t)run->places + run->rows * sizeof(int32_t));
    run->x = take(&at, run->rows * WIDTH * element);
    run->y = take(&at, run->rows * WIDTH * element);
    run->wide = take(&at, run->rows * MLP * element);
    run->vectors = take(&at, run->count * WIDTH * sizeof(float));
    return at - (uintptr_t)workspace;
}

/* Queues a batch: numbers from the staging memory, and vectors back into it. */
static loch_status queue_batch(const cuda_run *run, void *staging, size_t numbers_bytes, size_t vectors_bytes)
{
    const cuda_state *state = run->state;
    LOCH_RETURN(loch_copy_on(run->tokens, staging, numbers_bytes, state->stream));
    LOCH_RETURN(cuda_product_begin(state->product));
    LOCH_RETURN(run_rows(run));
    return loch_copy_on(staging, run->vectors, vectors_bytes, state->stream);
}

static loch_status cuda_run_batch(embedder_encoder *encoder, const token_batch *batch, float *vectors)
{
    const cuda_state *state = encoder->state;
    cuda_run run = {.state = state, .rows = batch->starts[batch->count], .count = batch->count};
    const size_t numbers_bytes = (2 * run.rows + run.count + 1) * sizeof(int32_t);
    const size_t vectors_bytes = run.count * WIDTH * sizeof(float);
    LOCH_AUTO(buffer) memory = NULL;
    LOCH_AUTO(buffer) host = NULL;
    if (run.count > SENTENCES_MAX || run.rows > INT32_MAX / MLP)
        return loch_error_set(LOCH_E_LIMIT, NULL, 0, "a batch of %zu sentences with %zu tokens is too large", run.count,
                              run.rows);
    LOCH_RETURN(loch_workspace_acquire(state->workspace, lay_out(&run, NULL, numbers_bytes), &memory));
    LOCH_RETURN(
        loch_workspace_acquire(state->staging, numbers_bytes > vectors_bytes ? numbers_bytes : vectors_bytes, &host));
    (void)lay_out(&run, loch_buffer_get_address(memory), numbers_bytes);
    void *staging = loch_buffer_get_address(host);
    write_numbers(batch, &run, staging);
    const loch_status status = queue_batch(&run, staging, numbers_bytes, vectors_bytes);
    const loch_error why = *loch_error_get();
    const loch_status ended = loch_stream_sync(state->stream); /* also after a failure: the host writes there next */
    if (status != LOCH_OK) return loch_error_set(status, why.driver, why.driver_code, "%s", why.sentence);
    LOCH_RETURN(ended);
    memcpy(vectors, staging, vectors_bytes);
    return LOCH_OK;
}

/* --- open and close --- */

static loch_status find(cuda_state *state, const char *name, loch_kernel **out)
{
    char full[32];
    snprintf(full, sizeof full, "%s_%s", name, state->dtype == LOCH_F16 ? "f16" : "f32");
    return loch_module_find(state->module, full, out);
}

static loch_status open_kernels(embedder_encoder *encoder, cuda_state *state)
{
    LOCH_RETURN(loch_module_create(encoder->device, embedder_ptx, (uintptr_t)embedder_ptx_end - (uintptr_t)embedder_ptx,
                                   &(loch_module_options){.size = sizeof(loch_module_options), .name = "embedder"},
                                   &state->module));
    LOCH_RETURN(find(state, "embed", &state->embed));
    LOCH_RETURN(find(state, "attend", &state->attend));
    LOCH_RETURN(find(state, "join", &state->join));
    LOCH_RETURN(find(state, "gelu", &state->gelu));
    return find(state, "pool", &state->pool);
}

static loch_status open_state(embedder_encoder *encoder, cuda_state *state)
{
    const loch_pool_options pinned = {.size = sizeof pinned, .kind = LOCH_MEMORY_PINNED};
    LOCH_RETURN(loch_stream_create(encoder->device, NULL, &state->stream));
    LOCH_RETURN(loch_pool_create(encoder->device, "embedder staging", &pinned, &state->pinned));
    LOCH_RETURN(open_kernels(encoder, state));
    LOCH_RETURN(cuda_weights_load(&encoder->model, encoder->pool, state->dtype, state->stream, &state->weights));
    LOCH_RETURN(cuda_product_open(encoder->pool, state->stream, state->dtype, &state->product));
    LOCH_RETURN(loch_workspace_create(encoder->pool, state->stream, NULL, &state->workspace));
    LOCH_RETURN(loch_workspace_create(state->pinned, state->stream, NULL, &state->staging));
    snprintf(encoder->text, sizeof encoder->text, "%s, cuBLAS, own kernels, %.1f MiB of weights",
             loch_dtype_name(state->dtype), (double)state->weights.frozen_bytes / (1 << 20));
    return LOCH_OK;
}

static loch_status cuda_open(embedder_encoder *encoder, const encoder_options *options)
{
    if (options->dtype != LOCH_F32 && options->dtype != LOCH_F16)
        return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "the CUDA engine computes in f32 or f16, not in %s",
                              loch_dtype_name(options->dtype));
    cuda_state *state = calloc(1, sizeof *state);
    if (!state) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for an encoder");
    encoder->state = state;
    state->dtype = options->dtype;
    return open_state(encoder, state);
}

static void cuda_close(embedder_encoder *encoder)
{
    cuda_state *state = encoder->state;
    if (state->stream && loch_stream_sync(state->stream) != LOCH_OK)
        fprintf(stderr, "embedder: %s\n", loch_error_get()->sentence);
    loch_workspace_destroy(state->staging);
    loch_workspace_destroy(state->workspace);
    cuda_product_close(state->product);
    cuda_weights_release(&state->weights);
    loch_module_destroy(state->module);
    loch_allocator_release(state->pinned);
    loch_stream_close(state->stream);
    free(state);
}

const encoder_engine encoder_cuda = {.open = cuda_open, .run = cuda_run_batch, .close = cuda_close};
