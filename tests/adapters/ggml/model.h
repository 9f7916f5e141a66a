/* SPDX-License-Identifier: MIT */
/* A small model of llama's kind with random weights, and what it answers: shared by the test, by the program that knows
 * nothing of Loch, and by the benchmark. Nothing here uses Loch. */
#ifndef TEST_GGML_MODEL_H
#define TEST_GGML_MODEL_H

#include <llama.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct model_shape {
    int layers, width, heads, hidden, words;
    enum ggml_type type; /* of the matrices */
} model_shape;

/* Writes a model to a file. Weights depend on `seed` alone. Returns the bytes of all tensors; 0 on failure. */
size_t model_write(const char *path, model_shape shape, uint32_t seed);

/* Decodes one piece of text that starts at `position` of a sequence; logits for the last token alone. Returns the
 * result of llama_decode. */
int model_decode(struct llama_context *context, const llama_token *tokens, int count, int position, int sequence);

/* Fills `tokens` with a text that depends on `seed` alone. */
void model_prompt(llama_token *tokens, int count, int words, uint32_t seed);

/* Decodes a prompt and then `steps` tokens that are drawn with a fixed seed. Writes the logits of each step, `words`
 * each, to `logits`. Returns false if llama.cpp failed. */
bool model_generate(struct llama_context *context, const llama_token *prompt, int count, int steps, int words,
                    float *logits);

#endif
