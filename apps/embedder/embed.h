/* SPDX-License-Identifier: MIT */
/* Sentences to vectors: the tokenizer and the encoder together. */
#ifndef EMBEDDER_EMBED_H
#define EMBEDDER_EMBED_H

#include "encoder.h"
#include "text.h"
#include "wordpiece.h"

enum { EMBED_BATCH = 32 }; /* sentences that go through the encoder at a time */

typedef struct embed_result {
    loch_tensor *vectors; /* sentences by WIDTH, f32 in host memory */
    size_t tokens;        /* of all sentences */
    double seconds;       /* that the encoder took */
} embed_result;

/* Encodes all sentences. What exceeds `most` tokens of a sentence is cut off.
 * @param out  release its tensor; no tensor on failure */
loch_status embed_texts(embedder_encoder *encoder, const wordpiece *vocabulary, const text_list *texts, size_t most,
                        embed_result *out);

/* Finds the `count` vectors nearest to `query` (WIDTH floats), best first.
 * @param indices, scores  room for `count`, at most the number of vectors */
void embed_rank(const float *vectors, size_t vectors_count, const float *query, size_t count, size_t *indices,
                float *scores);

#endif
