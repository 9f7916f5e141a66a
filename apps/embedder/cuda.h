/* SPDX-License-Identifier: MIT */
/* What the files of the CUDA engine share: weights on the device, matrix products by cuBLAS, kernels of kernels.cu. */
#ifndef EMBEDDER_CUDA_H
#define EMBEDDER_CUDA_H

#include "encoder.h"
#include <loch/kernel.h>
#include <loch/library.h>

/* --- weights: cuda_weights.c --- */

/* Tables and matrices are in the type of the encoder, vectors in f32. */
typedef struct cuda_layer {
    loch_tensor *qkv, *qkv_bias; /* query, key and value, one behind the other: one product for all three */
    loch_tensor *output, *output_bias, *output_norm, *output_norm_bias;
    loch_tensor *up, *up_bias;
    loch_tensor *down, *down_bias, *down_norm, *down_norm_bias;
} cuda_layer;

typedef struct cuda_weights {
    loch_tensor *words, *places, *kind, *norm, *norm_bias;
    cuda_layer layers[LAYERS];
    size_t frozen_bytes;
} cuda_weights;

/* Loads the weights of a model into a pool and freezes them there. Call cuda_weights_release in any case. */
loch_status cuda_weights_load(const embedder_model *model, loch_allocator *pool, loch_dtype dtype, loch_stream *stream,
                              cuda_weights *weights);

void cuda_weights_release(cuda_weights *weights);

/* --- products: cuda_product.c --- */

typedef struct cuda_product cuda_product;

/* Opens cuBLAS on a stream, with memory of the pool as its workspace. E_UNSUPPORTED: there is no cuBLAS. */
loch_status cuda_product_open(loch_allocator *pool, loch_stream *stream, loch_dtype dtype, cuda_product **out);

void cuda_product_close(cuda_product *product);

/* Prepares the calling thread for products. */
loch_status cuda_product_begin(cuda_product *product);

/* Queues y = x w^T; `x` is rows by inputs, `w` outputs by inputs, all of the type of the encoder, sums in f32. */
loch_status cuda_product_run(const cuda_product *product, const void *x, loch_tensor *w, size_t rows, void *y);

#endif
