/* SPDX-License-Identifier: MIT */
/* A small transformer decoder over bytes: RMSNorm, rotary positions, grouped key/value heads, SwiGLU, a separate output
 * matrix.
 *
 * The model is created once and then only read: any number of threads may run it at the same time, each with its own
 * context and caches. */
#ifndef DECODER_MODEL_H
#define DECODER_MODEL_H

#include "cache.h"
#include <loch/loch.h>

enum {
    VOCABULARY = 256, /* bytes */
    WIDTH = 64,
    HEADS = 4,
    KV_HEADS = 2, /* each of them serves HEADS / KV_HEADS heads */
    HEAD = WIDTH / HEADS,
    KV_WIDTH = KV_HEADS * HEAD,
    MLP = 172,
    LAYERS = 3,
    CONTEXT = 256,                     /* the most positions */
    CACHE_STEP = LAYERS * 2 * KV_WIDTH /* floats of one position in a cache */
};

/* The weights of a layer. */
enum { ATTENTION_NORM, QUERY, KEY, VALUE, OUTPUT, MLP_NORM, GATE, UP, DOWN, LAYER_WEIGHTS };

/* All weights in their order: the embedding, the layers, the last norm, the output matrix. */
enum { EMBEDDING, FIRST_LAYER, FINAL_NORM = FIRST_LAYER + LAYERS * LAYER_WEIGHTS, HEAD_MATRIX, WEIGHTS };

/* One weight: a matrix, rows by columns, or a vector. Matrices have a row for each output. */
typedef struct decoder_weight {
    char name[32]; /* also the name of its file: "layer0.query" */
    int64_t rows;
    int64_t columns; /* 0 for a vector of `rows` */
    loch_parameter *parameter;
    loch_tensor *tensor; /* the tensor on the seat; owned by the parameter */
    const float *data;   /* address of its elements; pinned, so it does not change */
} decoder_weight;

typedef struct decoder_model {
    loch_engine *engine; /* must outlive the model */
    loch_timeline *timeline;
    loch_tag activations;
    size_t frozen_bytes;
    decoder_weight weights[WEIGHTS];
} decoder_model;

/* Where the weights come from. */
typedef struct decoder_source {
    uint64_t seed;      /* described in weights.c */
    const char *folder; /* folder of .npy files; NULL to use the seed */
} decoder_source;

/* Declares, loads and freezes the weights, with a context of the calling thread. */
loch_status model_load(decoder_model *model, loch_context *context, const decoder_source *source);

/* Writes each weight to `folder`/name.npy. Creates the folder if it does not exist. */
loch_status model_save(const decoder_model *model, const char *folder);

void model_release(decoder_model *model);

/* Runs `count` tokens after those in the cache, which grows by their keys and values.
 * @param logits  count by VOCABULARY; the caller's reference */
loch_status model_forward(const decoder_model *model, loch_context *context, decoder_cache *cache,
                          const uint8_t *tokens, size_t count, loch_tensor **logits);

#endif
