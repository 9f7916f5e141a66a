/* SPDX-License-Identifier: MIT */
/* The encoder: sentences as tokens to vectors of length 1, on the CPU (cpu.c) or on a CUDA device (cuda.c).
 *
 * The rows of all sentences of a batch lie end to end, each sentence with its own length. There is no padding, so there
 * is no mask: attention and mean go over the rows of one sentence. */
#ifndef EMBEDDER_ENCODER_H
#define EMBEDDER_ENCODER_H

#include "model.h"

/* Sentences as tokens. Sentence i has the tokens starts[i] to starts[i + 1]: from 1 to POSITIONS of them. */
typedef struct token_batch {
    const int32_t *tokens;
    const size_t *starts; /* count + 1 of them; the first is 0 */
    size_t count;
} token_batch;

typedef struct encoder_options {
    const char *model;  /* .safetensors file */
    const char *device; /* "cpu" or "cuda:0" */
    loch_dtype dtype;   /* LOCH_F32, or LOCH_F16 on CUDA */
    size_t threads;     /* on the CPU */
    const char *blas;   /* file of a BLAS; NULL: OpenBLAS where it is; "": none */
} encoder_options;

typedef struct embedder_encoder embedder_encoder;

/* What computes. One thread at a time calls `run`. */
typedef struct encoder_engine {
    loch_status (*open)(embedder_encoder *encoder, const encoder_options *options);
    loch_status (*run)(embedder_encoder *encoder, const token_batch *batch, float *vectors);
    void (*close)(embedder_encoder *encoder);
} encoder_engine;

struct embedder_encoder {
    const encoder_engine *engine;
    embedder_model model;
    loch_device *device;
    loch_allocator *pool; /* for everything that the encoder allocates on the device */
    void *state;          /* the engine's own */
    char text[120];       /* says what computes: libraries and kernels */
};

extern const encoder_engine encoder_cpu, encoder_cuda;

/* Opens a model on a device.
 * @param out  owned by the caller; NULL on failure */
loch_status encoder_open(const encoder_options *options, embedder_encoder **out);

/* Computes the vectors of a batch. E_INVALID: a token or a length is out of range.
 * @param vectors  host memory for count by WIDTH floats, written when the call returns */
loch_status encoder_run(embedder_encoder *encoder, const token_batch *batch, float *vectors);

void encoder_close(embedder_encoder *encoder);

#endif
