/* SPDX-License-Identifier: MIT */
/* Weights go straight from the mapped file to the device, converted on the way. Frozen, they have a part of the pool of
 * their own: no other block is placed among them. */
#include "cuda.h"
#include <string.h>

typedef struct weights_source {
    const embedder_model *model;
    loch_allocator *pool;
    loch_dtype dtype;
    loch_stream *stream;
    loch_tag tag;
} weights_source;

/* Creates a tensor for `count` weights, rows one behind the other, and copies them into it. */
static loch_status load_joined(const weights_source *source, const size_t *indices, size_t count, loch_tensor **out)
{
    const embedder_model *model = source->model;
    const size_t dimensions = loch_tensor_get_dimensions(model->weights[indices[0]]);
    int64_t shape[2] = {0, loch_tensor_get_size(model->weights[indices[0]], -1)}, row = 0;
    const loch_tensor_options options = {
        .size = sizeof options, .allocator = source->pool, .stream = source->stream, .tag = source->tag};
    for (size_t i = 0; i < count; i++)
        shape[0] += loch_tensor_get_size(model->weights[indices[i]], 0);
    LOCH_RETURN(loch_tensor_create(dimensions == 1 ? LOCH_F32 : source->dtype, dimensions, shape, &options, out));
    for (size_t i = 0; i < count; i++) {
        loch_tensor *from = model->weights[indices[i]];
        LOCH_AUTO(tensor) part = NULL;
        LOCH_RETURN(loch_tensor_slice(*out, 0, row, row + loch_tensor_get_size(from, 0), 1, &part));
        LOCH_RETURN(loch_tensor_copy(part, from, NULL));
        row += loch_tensor_get_size(from, 0);
    }
    return LOCH_OK;
}

static loch_status load(const weights_source *source, size_t index, loch_tensor **out)
{
    return load_joined(source, &index, 1, out);
}

/* The kind of a sentence is always 0: the first row of its table, in f32. */
static loch_status load_kind(const weights_source *source, loch_tensor **out)
{
    const loch_tensor_options options = {
        .size = sizeof options, .allocator = source->pool, .stream = source->stream, .tag = source->tag};
    LOCH_AUTO(tensor) row = NULL;
    LOCH_RETURN(loch_tensor_index(source->model->weights[KINDS], 0, 0, &row));
    LOCH_RETURN(loch_tensor_create(LOCH_F32, LOCH_SHAPE(WIDTH), &options, out));
    return loch_tensor_copy(*out, row, NULL);
}

static loch_status load_layer(const weights_source *source, size_t layer, cuda_layer *out)
{
    const size_t first = model_index(layer, 0);
    const size_t qkv[] = {first + QUERY, first + KEY, first + VALUE};
    const size_t qkv_bias[] = {first + QUERY_BIAS, first + KEY_BIAS, first + VALUE_BIAS};
    LOCH_RETURN(load_joined(source, qkv, 3, &out->qkv));
    LOCH_RETURN(load_joined(source, qkv_bias, 3, &out->qkv_bias));
    LOCH_RETURN(load(source, first + OUTPUT, &out->output));
    LOCH_RETURN(load(source, first + OUTPUT_BIAS, &out->output_bias));
    LOCH_RETURN(load(source, first + OUTPUT_NORM, &out->output_norm));
    LOCH_RETURN(load(source, first + OUTPUT_NORM_BIAS, &out->output_norm_bias));
    LOCH_RETURN(load(source, first + UP, &out->up));
    LOCH_RETURN(load(source, first + UP_BIAS, &out->up_bias));
    LOCH_RETURN(load(source, first + DOWN, &out->down));
    LOCH_RETURN(load(source, first + DOWN_BIAS, &out->down_bias));
    LOCH_RETURN(load(source, first + DOWN_NORM, &out->down_norm));
    return load(source, first + DOWN_NORM_BIAS, &out->down_norm_bias);
}

loch_status cuda_weights_load(const embedder_model *model, loch_allocator *pool, loch_dtype dtype, loch_stream *stream,
                              cuda_weights *weights)
{
    weights_source source = {.model = model, .pool = pool, .dtype = dtype, .stream = stream};
    loch_freeze_report report = {.size = sizeof report};
    LOCH_RETURN(loch_tag_create("weights", &source.tag));
    LOCH_RETURN(load(&source, WORDS, &weights->words));
    LOCH_RETURN(load(&source, PLACES, &weights->places));
    LOCH_RETURN(load_kind(&source, &weights->kind));
    LOCH_RETURN(load(&source, EMBEDDING_NORM, &weights->norm));
    LOCH_RETURN(load(&source, EMBEDDING_NORM_BIAS, &weights->norm_bias));
    for (size_t i = 0; i < LAYERS; i++)
        LOCH_RETURN(load_layer(&source, i, &weights->layers[i]));
    LOCH_RETURN(loch_pool_freeze(
        pool, &(loch_freeze_options){.size = sizeof(loch_freeze_options), .tag = source.tag, .stream = stream},
        &report));
    weights->frozen_bytes = report.bytes;
    return LOCH_OK;
}

void cuda_weights_release(cuda_weights *weights)
{
    /* All members up to the figure at the end are tensors. */
    loch_tensor **tensors = &weights->words;
    for (size_t i = 0; i < offsetof(cuda_weights, frozen_bytes) / sizeof *tensors; i++)
        loch_tensor_clear(&tensors[i]);
}
