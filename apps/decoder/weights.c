/* SPDX-License-Identifier: MIT */
/* The weights: declared as parameters, which take no memory, then loaded one by one from a seed or from files, then
 * frozen. Frozen weights are packed together and do not move any more.
 *
 * From a seed: all weights in their order, row after row, take the numbers n = 0, 1, 2, ... of splitmix64. The upper 24
 * bits of a number give u in [-1, 1). An element of a vector is 1 + u / 10, of the embedding u, of another matrix u *
 * sqrt(3 / columns). */
#include "device.h"
#include "model.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const decoder_shape shapes[] = {
    {"small", .vocabulary = 256, .width = 64, .heads = 4, .kv_heads = 2, .head = 16, .mlp = 176, .layers = 3,
     .context = 256},
    {"1.1b", .vocabulary = 32000, .width = 2048, .heads = 32, .kv_heads = 4, .head = 64, .mlp = 5632, .layers = 22,
     .context = 2048},
};

const decoder_shape *shape_find(const char *name)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        if (!strcmp(shapes[i].name, name)) return &shapes[i];
    return NULL;
}

const decoder_weight *model_layer(const decoder_model *model, size_t layer, size_t kind)
{
    return &model->weights[FIRST_LAYER + layer * LAYER_WEIGHTS + kind];
}

const decoder_weight *model_final_norm(const decoder_model *model)
{
    return &model->weights[model->weights_count - 2];
}

const decoder_weight *model_head(const decoder_model *model)
{
    return &model->weights[model->weights_count - 1];
}

static void describe(decoder_weight *weight, const char *name, size_t rows, size_t columns)
{
    snprintf(weight->name, sizeof weight->name, "%s", name);
    weight->rows = (int64_t)rows;
    weight->columns = (int64_t)columns;
}

static loch_status describe_all(decoder_model *model)
{
    const decoder_shape *shape = &model->shape;
    const size_t width = shape->width, kv_width = shape_kv_width(shape);
    const struct {
        const char *name;
        size_t rows, columns;
    } layer_weights[LAYER_WEIGHTS] = {
        [ATTENTION_NORM] = {"attention_norm", width, 0},
        [QUERY] = {"query", width, width},
        [KEY] = {"key", kv_width, width},
        [VALUE] = {"value", kv_width, width},
        [OUTPUT] = {"output", width, width},
        [MLP_NORM] = {"mlp_norm", width, 0},
        [GATE] = {"gate", shape->mlp, width},
        [UP] = {"up", shape->mlp, width},
        [DOWN] = {"down", width, shape->mlp},
    };
    const size_t count = FIRST_LAYER + shape->layers * LAYER_WEIGHTS + 2;
    model->weights = calloc(count, sizeof *model->weights);
    if (!model->weights) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for the list of weights");
    model->weights_count = count;
    decoder_weight *weight = model->weights;
    describe(weight++, "embedding", shape->vocabulary, width);
    for (size_t layer = 0; layer < shape->layers; layer++)
        for (int kind = 0; kind < LAYER_WEIGHTS; kind++) {
            char name[32];
            snprintf(name, sizeof name, "layer%zu.%s", layer, layer_weights[kind].name);
            describe(weight++, name, layer_weights[kind].rows, layer_weights[kind].columns);
        }
    describe(weight++, "final_norm", width, 0);
    describe(weight, "head", shape->vocabulary, width);
    return LOCH_OK;
}

static size_t dimensions_of(const decoder_weight *weight)
{
    return weight->columns ? 2 : 1;
}

static size_t elements_of(const decoder_weight *weight)
{
    return (size_t)(weight->rows * (weight->columns ? weight->columns : 1));
}

/* --- from a seed --- */

/* The elements that one task makes. */
typedef struct make_part {
    float *to;
    uint64_t seed, first, count;
    double base, scale;
} make_part;

static loch_status make_some(void *user)
{
    const make_part *part = user;
    for (uint64_t i = 0; i < part->count; i++) {
        const double u = (double)(random_at(part->seed, part->first + i) >> 40) / (1 << 23) - 1;
        part->to[i] = (float)(part->base + u * part->scale);
    }
    return LOCH_OK;
}

/* Makes a weight on the host. All workers of the seat take a part of it. */
static loch_status make(const decoder_model *model, size_t index, uint64_t seed, loch_tensor **out)
{
    const decoder_weight *weight = &model->weights[index];
    loch_workers *workers = loch_engine_get_workers(model->engine, LOCH_SEAT(0));
    make_part parts[64];
    const size_t threads = loch_workers_get_threads(workers), elements = elements_of(weight);
    const size_t each = (elements + threads - 1) / threads;
    uint64_t n = 0;
    for (size_t i = 0; i < index; i++)
        n += elements_of(&model->weights[i]);
    void *address;
    LOCH_RETURN(
        loch_tensor_create(LOCH_F32, dimensions_of(weight), (int64_t[]){weight->rows, weight->columns}, NULL, out));
    LOCH_RETURN(loch_tensor_get_address(*out, &address));
    const double scale = !weight->columns ? 0.1 : index == EMBEDDING ? 1 : sqrt(3.0 / (double)weight->columns);
    loch_status status = LOCH_OK;
    for (size_t i = 0, at = 0; i < threads && at < elements && status == LOCH_OK; i++, at += each) {
        parts[i] = (make_part){.to = (float *)address + at,
                               .seed = seed,
                               .first = n + at,
                               .count = elements - at < each ? elements - at : each,
                               .base = weight->columns ? 0 : 1,
                               .scale = scale};
        status = loch_workers_run(workers, make_some, &parts[i], NULL);
    }
    const loch_status made = loch_workers_wait(workers, NULL); /* tasks that were started use `parts` */
    return status == LOCH_OK ? made : status;
}

/* --- files --- */

static loch_status path_of(const decoder_weight *weight, const char *folder, char path[4096])
{
    if (snprintf(path, 4096, "%s/%s.npy", folder, weight->name) < 4096) return LOCH_OK;
    return loch_error_set(LOCH_E_INVALID, NULL, 0, "the folder's name is too long");
}

loch_status model_save(const decoder_model *model, const char *folder)
{
    char path[4096];
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        return loch_error_set(LOCH_E_IO, NULL, 0, "%.180s: %s", folder, strerror(errno));
    for (size_t i = 0; i < model->weights_count; i++) {
        LOCH_RETURN(path_of(&model->weights[i], folder, path));
        LOCH_RETURN(loch_npy_save(model->weights[i].tensor, path, NULL));
    }
    return LOCH_OK;
}

/* --- loading --- */

static loch_status load(decoder_model *model, loch_context *context, size_t index, const decoder_source *source)
{
    decoder_weight *weight = &model->weights[index];
    char path[4096] = "";
    LOCH_AUTO(tensor) from = NULL;
    if (source->folder) {
        LOCH_RETURN(path_of(weight, source->folder, path));
        LOCH_RETURN(loch_npy_load(path, NULL, &from));
    } else {
        LOCH_RETURN(make(model, index, source->seed, &from));
    }
    const loch_status status = loch_context_load(context, weight->parameter, from); /* checks the shape */
    if (status == LOCH_OK || !source->folder) return status;
    const loch_error why = *loch_error_get();
    return loch_error_set(status, NULL, 0, "%.100s: %.140s", path, why.sentence);
}

/* Stores the addresses. They stay valid: a pinned block does not move. */
static loch_status look(decoder_model *model, loch_context *context)
{
    for (size_t i = 0; i < model->weights_count; i++) {
        decoder_weight *weight = &model->weights[i];
        void *address;
        LOCH_RETURN(loch_parameter_acquire_tensor(weight->parameter, loch_context_get_seat(context), &weight->tensor));
        LOCH_RETURN(loch_buffer_pin(loch_tensor_get_buffer(weight->tensor), NULL, &address));
        weight->data = (const char *)address + loch_tensor_get_offset(weight->tensor);
    }
    return LOCH_OK;
}

loch_status model_load(decoder_model *model, loch_context *context, const decoder_source *source)
{
    loch_tag tag;
    model->engine = loch_context_get_engine(context);
    model->timeline = loch_engine_get_timeline(model->engine);
    LOCH_SPAN(model->timeline, "load");
    LOCH_RETURN(describe_all(model));
    LOCH_RETURN(loch_tag_create("activations", &model->activations));
    LOCH_RETURN(loch_tag_create("weights", &tag));
    for (size_t i = 0; i < model->weights_count; i++) {
        decoder_weight *weight = &model->weights[i];
        const int64_t shape[] = {weight->rows, weight->columns};
        LOCH_RETURN(loch_context_declare(context, weight->name, model->dtype, dimensions_of(weight), shape,
                                         LOCH_SPREAD_ONE, 0, tag, &weight->parameter));
    }
    for (size_t i = 0; i < model->weights_count; i++)
        LOCH_RETURN(load(model, context, i, source));
    LOCH_RETURN(loch_engine_freeze(model->engine, tag, &model->frozen_bytes));
    return look(model, context);
}

void model_release(decoder_model *model)
{
    for (size_t i = 0; i < model->weights_count; i++) {
        decoder_weight *weight = &model->weights[i];
        if (weight->data && loch_buffer_unpin(loch_tensor_get_buffer(weight->tensor), NULL) != LOCH_OK)
            fprintf(stderr, "decoder: %s\n", loch_error_get()->sentence);
        loch_tensor_clear(&weight->tensor);
        loch_parameter_release(weight->parameter);
    }
    free(model->weights);
    *model = (decoder_model){.weights = NULL};
}
