/* SPDX-License-Identifier: MIT */
/* all-MiniLM-L6-v2: a BERT encoder of six layers. Its weights stay in the file, which is mapped: the CPU reads them
 * there, other devices load them from there. */
#ifndef EMBEDDER_MODEL_H
#define EMBEDDER_MODEL_H

#include <loch/loch.h>
#include <loch/safetensors.h>
#include <loch/tensor.h>

enum {
    WIDTH = 384,
    HEADS = 12,
    HEAD = WIDTH / HEADS,
    MLP = 1536,
    LAYERS = 6,
    POSITIONS = 512, /* the most tokens of a sentence */
    QKV = 3 * WIDTH  /* query, key and value of a token, side by side */
};

#define NORM_EPSILON 1e-12F

/* The weights of a layer. Matrices have a row for each output. */
enum {
    QUERY,
    QUERY_BIAS,
    KEY,
    KEY_BIAS,
    VALUE,
    VALUE_BIAS,
    OUTPUT,
    OUTPUT_BIAS,
    OUTPUT_NORM,
    OUTPUT_NORM_BIAS,
    UP,
    UP_BIAS,
    DOWN,
    DOWN_BIAS,
    DOWN_NORM,
    DOWN_NORM_BIAS,
    LAYER_WEIGHTS
};

/* All weights in their order: the embeddings, then the layers. */
enum { WORDS, PLACES, KINDS, EMBEDDING_NORM, EMBEDDING_NORM_BIAS, FIRST_LAYER };
enum { WEIGHTS = FIRST_LAYER + LAYERS * LAYER_WEIGHTS };

typedef struct embedder_model {
    size_t vocabulary;             /* number of tokens */
    loch_tensor *weights[WEIGHTS]; /* f32, in host memory, read-only */
    const float *data[WEIGHTS];    /* their elements */
} embedder_model;

/* A weight as the file must have it. */
typedef struct model_shape {
    char name[96];
    int64_t rows;    /* -1: the number of tokens */
    int64_t columns; /* 0 for a vector of `rows` */
} model_shape;

model_shape model_describe(size_t index);

/* Opens the weights in a .safetensors file. Those in f16 or bf16 are converted into memory of the host. E_NOT_FOUND:
 * the file, or a weight in it, is missing. E_CORRUPT: the file does not hold what it says, or a weight has another
 * shape or type. Call model_close in any case. */
loch_status model_open(const char *path, embedder_model *model);

void model_close(embedder_model *model);

/* Returns the index of a weight of a layer. */
static inline size_t model_index(size_t layer, size_t kind)
{
    return FIRST_LAYER + layer * LAYER_WEIGHTS + kind;
}

#endif
