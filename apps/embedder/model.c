/* SPDX-License-Identifier: MIT */
/* The names and shapes of the weights. The number of words is the file's; everything else must be as declared here. */
#include "model.h"
#include <stdio.h>
#include <string.h>

static const model_shape embedding_weights[FIRST_LAYER] = {
    [WORDS] = {"embeddings.word_embeddings.weight", -1, WIDTH},
    [PLACES] = {"embeddings.position_embeddings.weight", POSITIONS, WIDTH},
    [KINDS] = {"embeddings.token_type_embeddings.weight", 2, WIDTH},
    [EMBEDDING_NORM] = {"embeddings.LayerNorm.weight", WIDTH, 0},
    [EMBEDDING_NORM_BIAS] = {"embeddings.LayerNorm.bias", WIDTH, 0},
};

static const model_shape layer_weights[LAYER_WEIGHTS] = {
    [QUERY] = {"attention.self.query.weight", WIDTH, WIDTH},
    [QUERY_BIAS] = {"attention.self.query.bias", WIDTH, 0},
    [KEY] = {"attention.self.key.weight", WIDTH, WIDTH},
    [KEY_BIAS] = {"attention.self.key.bias", WIDTH, 0},
    [VALUE] = {"attention.self.value.weight", WIDTH, WIDTH},
    [VALUE_BIAS] = {"attention.self.value.bias", WIDTH, 0},
    [OUTPUT] = {"attention.output.dense.weight", WIDTH, WIDTH},
    [OUTPUT_BIAS] = {"attention.output.dense.bias", WIDTH, 0},
    [OUTPUT_NORM] = {"attention.output.LayerNorm.weight", WIDTH, 0},
    [OUTPUT_NORM_BIAS] = {"attention.output.LayerNorm.bias", WIDTH, 0},
    [UP] = {"intermediate.dense.weight", MLP, WIDTH},
    [UP_BIAS] = {"intermediate.dense.bias", MLP, 0},
    [DOWN] = {"output.dense.weight", WIDTH, MLP},
    [DOWN_BIAS] = {"output.dense.bias", WIDTH, 0},
    [DOWN_NORM] = {"output.LayerNorm.weight", WIDTH, 0},
    [DOWN_NORM_BIAS] = {"output.LayerNorm.bias", WIDTH, 0},
};

model_shape model_describe(size_t index)
{
    if (index < FIRST_LAYER) return embedding_weights[index];
    model_shape shape = layer_weights[(index - FIRST_LAYER) % LAYER_WEIGHTS];
    char name[sizeof shape.name];
    snprintf(name, sizeof name, "encoder.layer.%zu.%.60s", (index - FIRST_LAYER) / LAYER_WEIGHTS, shape.name);
    memcpy(shape.name, name, sizeof name);
    return shape;
}

static int has_shape(const loch_tensor *tensor, const model_shape *wanted)
{
    const loch_dtype dtype = loch_tensor_get_dtype(tensor);
    if (dtype != LOCH_F32 && dtype != LOCH_F16 && dtype != LOCH_BF16) return 0;
    if (loch_tensor_get_dimensions(tensor) != (wanted->columns ? 2U : 1U)) return 0;
    if (wanted->columns && loch_tensor_get_size(tensor, 1) != wanted->columns) return 0;
    const int64_t rows = loch_tensor_get_size(tensor, 0);
    return wanted->rows < 0 ? rows > 0 && rows <= INT32_MAX : rows == wanted->rows;
}

static loch_status open_weight(embedder_model *model, const loch_safetensors *file, const char *path, size_t index)
{
    void *address;
    const model_shape wanted = model_describe(index);
    LOCH_AUTO(tensor) tensor = NULL;
    LOCH_RETURN(loch_safetensors_acquire_tensor(file, wanted.name, &tensor));
    if (!has_shape(tensor, &wanted))
        return loch_error_set(LOCH_E_CORRUPT, NULL, 0,
                              "%.80s: \"%s\" is not a weight of %lld by %lld in f32, f16 or bf16: another model", path,
                              wanted.name, (long long)(wanted.rows < 0 ? loch_tensor_get_size(tensor, 0) : wanted.rows),
                              (long long)(wanted.columns ? wanted.columns : 1));
    LOCH_RETURN(loch_tensor_to(tensor, LOCH_F32, NULL, &model->weights[index])); /* no copy if it is f32 */
    LOCH_RETURN(loch_tensor_get_address(model->weights[index], &address));
    model->data[index] = address;
    return LOCH_OK;
}

loch_status model_open(const char *path, embedder_model *model)
{
    loch_safetensors *file;
    *model = (embedder_model){.vocabulary = 0};
    LOCH_RETURN(loch_safetensors_open(path, NULL, &file));
    loch_status status = LOCH_OK;
    for (size_t i = 0; i < WEIGHTS && status == LOCH_OK; i++)
        status = open_weight(model, file, path, i);
    if (status == LOCH_OK) model->vocabulary = (size_t)loch_tensor_get_size(model->weights[WORDS], 0);
    loch_safetensors_close(file); /* the tensors hold the mapping */
    return status;
}

void model_close(embedder_model *model)
{
    for (size_t i = 0; i < WEIGHTS; i++)
        loch_tensor_release(model->weights[i]);
    *model = (embedder_model){.vocabulary = 0};
}
