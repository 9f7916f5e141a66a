/* SPDX-License-Identifier: MIT */
/* The arithmetic of the encoder on the CPU, besides matrix products, on rows of floats. cpu_kernels_body.h has the
 * functions; they are compiled for AVX-512, for AVX2, and for any processor. */
#ifndef EMBEDDER_CPU_KERNELS_H
#define EMBEDDER_CPU_KERNELS_H

#include "model.h"

/* What an attention works on: one sentence. Rows of `qkv` have QKV floats without their biases. */
typedef struct cpu_attention {
    const float *qkv;
    const float *query_bias, *key_bias, *value_bias;
    size_t length;
    float *scratch; /* CPU_SCRATCH floats */
    float *mixed;   /* result: length by WIDTH */
} cpu_attention;

/* Keys of one head turned by a quarter, and the scores of four rows. */
#define CPU_SCRATCH ((size_t)POSITIONS * (HEAD + 4))

typedef struct cpu_kernels {
    const char *name;
    /* Writes the embeddings of `length` tokens of one sentence, normalised. */
    void (*embed)(const embedder_model *model, const int32_t *tokens, size_t length, float *x);
    /* y = x + bias, row by row. The product that follows adds to y. */
    void (*add_bias)(const float *x, const float *bias, size_t rows, float *y);
    /* x = (x - mean) / sqrt(variance + epsilon) * weight + bias, row by row. */
    void (*norm)(const float *weight, const float *bias, size_t rows, float *x);
    /* x = gelu(x + bias), row by row; rows have MLP floats. */
    void (*gelu)(const float *bias, size_t rows, float *x);
    /* Mixes values by softmax(query key / sqrt(HEAD)), head by head. */
    void (*attend)(const cpu_attention *attention);
    /* The mean over the rows, divided by its length: one row. */
    void (*pool)(const float *x, size_t rows, float *vector);
    /* y = x w^T, or y += x w^T: for machines without a BLAS. The rows of y are `step` floats apart. */
    void (*multiply)(const float *x, const float *w, size_t rows, size_t outputs, size_t inputs, float beta, float *y,
                     size_t step);
} cpu_kernels;

extern const cpu_kernels cpu_kernels_plain, cpu_kernels_avx2, cpu_kernels_avx512;

/* Returns the fastest kernels that this processor can run. */
const cpu_kernels *cpu_kernels_get(void);

#endif
