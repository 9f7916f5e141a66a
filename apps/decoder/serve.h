/* SPDX-License-Identifier: MIT */
/* Requests, and two ways to serve several of them at a time. On the host each worker of the seat takes the next request
 * from a queue when it is free (serve.c). On a CUDA device all requests of a batch take a step together (batch.c). */
#ifndef DECODER_SERVE_H
#define DECODER_SERVE_H

#include "model.h"

typedef struct decoder_request {
    size_t number;
    size_t prompt;      /* number of tokens in `text` at the beginning */
    size_t length;      /* number of tokens now */
    size_t wanted;      /* number of tokens at the end; at most the context of the shape */
    int32_t *text;      /* room for the tokens at the end */
    float *logits;      /* receives the logits of all positions, wanted - 1 by vocabulary; NULL to discard them */
    size_t cache_bytes; /* bytes that its cache held at the end, when it was largest */
} decoder_request;

/* How requests are served. */
typedef struct serve_options {
    cache_kind cache;
    float temperature; /* of sampling; 0: the first of the largest logits */
    uint64_t seed;     /* of sampling */
    size_t batch;      /* slots of a batch on a CUDA device */
    int graph;    /* non-zero: a step is captured into a CUDA graph once, and the graph is launched for every step */
    int early;    /* non-zero: kernels may begin before the one in front of them ends */
    int profile;  /* non-zero: prints the time of each kernel when the first request ends */
    size_t ahead; /* MiB of weights of later kernels that a kernel fetches */
    size_t warps; /* warps of a block in matrix products */
} serve_options;

/* What serving took. */
typedef struct serve_result {
    size_t caches_peak_bytes; /* the most bytes that all caches held at a time */
    double step_seconds;      /* on a CUDA device: time of a step, without the first ones; 0 if there were too few */
    double slots_busy;        /* mean number of slots with a request in these steps */
    size_t read_bytes;        /* bytes of weights and caches that a step reads, on average */
    size_t reserved_bytes;    /* held by the pool at the end of serving, before caches are freed */
    size_t held_bytes;        /* of blocks in it */
} serve_result;

/* Initialises request `number` with the prompt of this number. Free it with request_end. */
loch_status request_init(decoder_request *request, size_t number, size_t tokens);

void request_end(decoder_request *request);

/* Returns the length of the longest prompt. */
size_t request_longest(void);

/* Answers all requests on the host and returns the first failure. A failure does not stop the other requests. */
loch_status serve(const decoder_model *model, loch_seat seat, decoder_request *requests, size_t count,
                  const serve_options *options, serve_result *result);

/* Answers all requests on a CUDA device, with continuous batching: a request that ends makes room for the next one
 * while the others go on. */
loch_status batch_serve(const decoder_model *model, loch_context *context, decoder_request *requests, size_t count,
                        const serve_options *options, serve_result *result);

#endif
