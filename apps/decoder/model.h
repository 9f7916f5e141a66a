/* SPDX-License-Identifier: MIT */
/* A transformer decoder: RMSNorm, rotary positions, grouped key/value heads, SwiGLU, a separate output matrix.
 *
 * The model is created once and then only read: any number of threads may run it at the same time, each with its own
 * context and caches. On the host it runs here (model.c); on a CUDA device in batch.c. */
#ifndef DECODER_MODEL_H
#define DECODER_MODEL_H

#include "cache.h"
#include <loch/engine.h>
#include <loch/loch.h>
#include <loch/tensor.h>

/* The weights of a layer. */
enum { ATTENTION_NORM, QUERY, KEY, VALUE, OUTPUT, MLP_NORM, GATE, UP, DOWN, LAYER_WEIGHTS };

/* All weights in their order: the embedding, the layers, the last norm, the output matrix. */
enum { EMBEDDING, FIRST_LAYER };

/* One weight: a matrix, rows by columns, or a vector. Matrices have a row for each output. */
typedef struct decoder_weight {
    char name[32]; /* also the name of its file: "layer0.query" */
    int64_t rows;
    int64_t columns; /* 0 for a vector of `rows` */
    loch_parameter *parameter;
    loch_tensor *tensor; /* the tensor on the seat; owned by the parameter */
    const void *data;    /* address of its elements; pinned, so it does not change */
} decoder_weight;

typedef struct decoder_model {
    decoder_shape shape;
    loch_dtype dtype;    /* of weights and caches: LOCH_F32, or LOCH_BF16 on a CUDA device */
    loch_engine *engine; /* must outlive the model */
    loch_timeline *timeline;
    loch_tag activations;
    size_t frozen_bytes;
    decoder_weight *weights;
    size_t weights_count;
} decoder_model;

/* Where the weights come from. */
typedef struct decoder_source {
    uint64_t seed;      /* described in weights.c */
    const char *folder; /* folder of .npy files; NULL to use the seed */
} decoder_source;

/* Finds a shape by name: "small" or "1.1b". Returns NULL if there is none. */
const decoder_shape *shape_find(const char *name);

/* Declares, loads and freezes the weights, with a context of the calling thread. `model` is zero except for its shape
 * and type. */
loch_status model_load(decoder_model *model, loch_context *context, const decoder_source *source);

/* Writes each weight to `folder`/name.npy. Creates the folder if it does not exist. */
loch_status model_save(const decoder_model *model, const char *folder);

void model_release(decoder_model *model);

/* Returns a weight of a layer. */
const decoder_weight *model_layer(const decoder_model *model, size_t layer, size_t kind);

/* Returns the last norm and the output matrix. */
const decoder_weight *model_final_norm(const decoder_model *model);
const decoder_weight *model_head(const decoder_model *model);

/* Runs `count` tokens on the host, after those in the cache, which grows by their keys and values.
 * @param logits  count by vocabulary; the caller's reference */
loch_status model_forward(const decoder_model *model, loch_context *context, decoder_cache *cache,
                          const int32_t *tokens, size_t count, loch_tensor **logits);

#endif
