/* SPDX-License-Identifier: MIT */
/* Several requests at a time: they stand in a queue, and each worker of the seat takes the next one when it is free. */
#ifndef DECODER_SERVE_H
#define DECODER_SERVE_H

#include "model.h"

typedef struct decoder_request {
    size_t number;
    size_t prompt; /* how many of `text` were given */
    size_t length; /* how many there are now */
    size_t wanted; /* how many there shall be; CONTEXT at most */
    uint8_t text[CONTEXT];
    float *logits;      /* takes those of all positions, wanted - 1 by VOCABULARY; NULL: nobody wants them */
    size_t cache_bytes; /* that its cache held in the end, when it was largest */
} decoder_request;

/* Begins request `number` with the prompt that has this number. */
void request_init(decoder_request *request, size_t number, size_t tokens);

/* The longest prompt. */
size_t request_longest(void);

/* Answers all of them, and returns the first failure; the others are answered all the same.
 * @param caches_peak_bytes  the most that all caches held at a time */
loch_status serve(const decoder_model *model, loch_seat seat, decoder_request *requests, size_t count,
                  size_t *caches_peak_bytes);

#endif
