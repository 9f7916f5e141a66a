/* SPDX-License-Identifier: MIT */
/* A small transformer decoder over bytes: RMSNorm, rotary positions, grouped key/value heads, SwiGLU, an output matrix of its own.
 *
 * The model is made once and then only read: any number of threads run it at a time, each with a context and caches of its
 * own. */
#ifndef DECODER_MODEL_H
#define DECODER_MODEL_H

#include "cache.h"
#include <loch/loch.h>

enum {
    VOCABULARY = 256, /* bytes */
    WIDTH = 64,
    HEADS = 4,
    KV_HEADS = 2, /* each serves HEADS / KV_HEADS heads */
    HEAD = WIDTH / HEADS,
    KV_WIDTH = KV_HEADS * HEAD,
    MLP = 172,
    LAYERS = 3,
    CONTEXT = 256,                     /* positions at most */
    CACHE_STEP = LAYERS * 2 * KV_WIDTH /* floats that a position has in a cache */
};

/* The weights of a layer. */
enum { ATTENTION_NORM, QUERY, KEY, VALUE, OUTPUT, MLP_NORM, GATE, UP, DOWN, LAYER_WEIGHTS };

/* All weights in their order: the embedding, the layers, the last norm, the output matrix. */
enum { EMBEDDING, FIRST_LAYER, FINAL_NORM = FIRST_LAYER + LAYERS * LAYER_WEIGHTS, HEAD_MATRIX, WEIGHTS };

/* One weight: a matrix, rows by columns, or a vector. Matrices have a row for each output. */
typedef struct decoder_weight {
    char name[32]; /* also of its file: "layer0.query" */
    int64_t rows;
    int64_t columns; /* 0: a vector of `rows` */
    loch_parameter *parameter;
    loch_tensor *tensor; /* what lies on the seat; of the parameter */
    const float *data;   /* its elements; pinned, so they stay where they are */
} decoder_weight;

typedef struct decoder_model {
    loch_engine *engine; /* outlives the model */
    loch_timeline *timeline;
    loch_tag activations;
    size_t frozen_bytes;
    decoder_weight weights[WEIGHTS];
} decoder_model;

/* Where the weights come from. */
typedef struct decoder_source {
    uint64_t seed;      /* see weights.c */
    const char *folder; /* of .npy files; NULL: from the seed */
} decoder_source;

/* Declares, loads and freezes the weights, by a context of the calling thread. */
loch_status model_load(decoder_model *model, loch_context *context, const decoder_source *source);

/* Writes each weight to `folder`/name.npy; the folder is made if it is not there. */
loch_status model_save(const decoder_model *model, const char *folder);

void model_release(decoder_model *model);

/* Runs `count` tokens behind those of the cache, which grows by their keys and values.
 * @param logits  count by VOCABULARY; the caller's reference */
loch_status model_forward(const decoder_model *model, loch_context *context, decoder_cache *cache,
                          const uint8_t *tokens, size_t count, loch_tensor **logits);

#endif
