/* SPDX-License-Identifier: MIT */
/* The weights: declared as parameters, which take no memory, then loaded one by one from a seed or from files, then
 * frozen. Frozen weights are packed together and do not move any more.
 *
 * From a seed: all weights in their order, row after row, take the numbers n = 0, 1, 2, ... of splitmix64. The upper 24
 * bits of a number give u in [-1, 1). An element of a vector is 1 + u / 10, of the embedding u, of another matrix u *
 * sqrt(3 / columns). */
#include "model.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct {
    const char *name;
    int64_t rows, columns;
} layer_weights[LAYER_WEIGHTS] = {
    [ATTENTION_NORM] = {"attention_norm", WIDTH, 0},
    [QUERY] = {"query", WIDTH, WIDTH},
    [KEY] = {"key", KV_WIDTH, WIDTH},
    [VALUE] = {"value", KV_WIDTH, WIDTH},
    [OUTPUT] = {"output", WIDTH, WIDTH},
    [MLP_NORM] = {"mlp_norm", WIDTH, 0},
    [GATE] = {"gate", MLP, WIDTH},
    [UP] = {"up", MLP, WIDTH},
    [DOWN] = {"down", WIDTH, MLP},
};

static void describe(decoder_model *model)
{
    model->weights[EMBEDDING] = (decoder_weight){.name = "embedding", .rows = VOCABULARY, .columns = WIDTH};
    model->weights[FINAL_NORM] = (decoder_weight){.name = "final_norm", .rows = WIDTH};
    model->weights[HEAD_MATRIX] = (decoder_weight){.name = "head", .rows = VOCABULARY, .columns = WIDTH};
    for (int layer = 0; layer < LAYERS; layer++)
        for (int kind = 0; kind < LAYER_WEIGHTS; kind++) {
            decoder_weight *weight = &model->weights[FIRST_LAYER + layer * LAYER_WEIGHTS + kind];
            snprintf(weight->name, sizeof weight->name, "layer%d.%s", layer, layer_weights[kind].name);
            weight->rows = layer_weights[kind].rows;
            weight->columns = layer_weights[kind].columns;
        }
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

static uint64_t random_at(uint64_t seed, uint64_t n)
{
    uint64_t z = seed + (n + 1) * 0x9e3779b97f4a7c15U;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9U;
    z = (z ^ z >> 27) * 0x94d049bb133111ebU;
    return z ^ z >> 31;
}

static loch_status make(const decoder_model *model, size_t index, uint64_t seed, loch_tensor **out)
{
    const decoder_weight *weight = &model->weights[index];
    uint64_t n = 0;
    for (size_t i = 0; i < index; i++)
        n += elements_of(&model->weights[i]);
    void *address;
    LOCH_RETURN(
        loch_tensor_create(LOCH_F32, dimensions_of(weight), (int64_t[]){weight->rows, weight->columns}, NULL, out));
    LOCH_RETURN(loch_tensor_get_address(*out, &address));
    const double scale = !weight->columns ? 0.1 : index == EMBEDDING ? 1 : sqrt(3.0 / (double)weight->columns);
    for (size_t i = 0; i < elements_of(weight); i++) {
        const double u = (double)(random_at(seed, n + i) >> 40) / (1 << 23) - 1;
        ((float *)address)[i] = (float)(weight->columns ? u * scale : 1 + u * scale);
    }
    return LOCH_OK;
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
    for (size_t i = 0; i < WEIGHTS; i++) {
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
    for (size_t i = 0; i < WEIGHTS; i++) {
        decoder_weight *weight = &model->weights[i];
        void *address;
        LOCH_RETURN(loch_parameter_acquire_tensor(weight->parameter, loch_context_get_seat(context), &weight->tensor));
        if (!loch_tensor_is_on_host(weight->tensor))
            return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0,
                                  "the decoder computes on the host, which does not reach the memory of %s",
                                  loch_device_get_name(loch_context_get_device(context)));
        LOCH_RETURN(loch_buffer_pin(loch_tensor_get_buffer(weight->tensor), NULL, &address));
        weight->data = (const float *)address + loch_tensor_get_offset(weight->tensor) / sizeof(float);
    }
    return LOCH_OK;
}

loch_status model_load(decoder_model *model, loch_context *context, const decoder_source *source)
{
    loch_tag tag;
    *model = (decoder_model){.engine = loch_context_get_engine(context)};
    model->timeline = loch_engine_get_timeline(model->engine);
    LOCH_SPAN(model->timeline, "load");
    describe(model);
    LOCH_RETURN(loch_tag_create("activations", &model->activations));
    LOCH_RETURN(loch_tag_create("weights", &tag));
    for (size_t i = 0; i < WEIGHTS; i++) {
        decoder_weight *weight = &model->weights[i];
        const int64_t shape[] = {weight->rows, weight->columns};
        LOCH_RETURN(loch_context_declare(context, weight->name, LOCH_F32, dimensions_of(weight), shape, LOCH_SPREAD_ONE,
                                         0, tag, &weight->parameter));
    }
    for (size_t i = 0; i < WEIGHTS; i++)
        LOCH_RETURN(load(model, context, i, source));
    LOCH_RETURN(loch_engine_freeze(model->engine, tag, &model->frozen_bytes));
    return look(model, context);
}

void model_release(decoder_model *model)
{
    for (size_t i = 0; i < WEIGHTS; i++) {
        decoder_weight *weight = &model->weights[i];
        if (weight->data && loch_buffer_unpin(loch_tensor_get_buffer(weight->tensor), NULL) != LOCH_OK)
            fprintf(stderr, "decoder: %s\n", loch_error_get()->sentence);
        loch_tensor_clear(&weight->tensor);
        loch_parameter_release(weight->parameter);
        *weight = (decoder_weight){.data = NULL};
    }
}
