/* SPDX-License-Identifier: MIT */
/* Serves several requests at a time: each worker of the seat takes the next request from a queue when it is free. */
#ifndef DECODER_SERVE_H
#define DECODER_SERVE_H

#include "model.h"

typedef struct decoder_request {
    size_t number;
    size_t prompt; /* number of tokens in `text` at the beginning */
    size_t length; /* number of tokens now */
    size_t wanted; /* number of tokens at the end; at most CONTEXT */
    uint8_t text[CONTEXT];
    float *logits;      /* receives the logits of all positions, wanted - 1 by VOCABULARY; NULL to discard them */
    size_t cache_bytes; /* bytes that its cache held at the end, when it was largest */
} decoder_request;

/* Initialises request `number` with the prompt of this number. */
void request_init(decoder_request *request, size_t number, size_t tokens);

/* Returns the length of the longest prompt. */
size_t request_longest(void);

/* Answers all requests and returns the first failure. A failure does not stop the other requests.
 * @param caches_peak_bytes  the most bytes that all caches held at a time */
loch_status serve(const decoder_model *model, loch_seat seat, decoder_request *requests, size_t count,
                  size_t *caches_peak_bytes);

#endif
