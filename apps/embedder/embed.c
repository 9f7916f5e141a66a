/* SPDX-License-Identifier: MIT */
#include "embed.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static loch_status encode_batch(embedder_encoder *encoder, const wordpiece *vocabulary, const text_list *texts,
                                size_t first, size_t most, int32_t *tokens, float *vectors, embed_result *out)
{
    size_t starts[EMBED_BATCH + 1] = {0}, count = 0;
    for (; count < EMBED_BATCH && first + count < texts->count; count++) {
        const char *text = texts->items[first + count];
        size_t length;
        LOCH_RETURN(wordpiece_encode(vocabulary, text, strlen(text), most, tokens + starts[count], &length));
        starts[count + 1] = starts[count] + length;
    }
    const double start = now();
    const token_batch batch = {.tokens = tokens, .starts = starts, .count = count};
    LOCH_RETURN(encoder_run(encoder, &batch, vectors + first * WIDTH));
    out->seconds += now() - start;
    out->tokens += starts[count];
    return LOCH_OK;
}

loch_status embed_texts(embedder_encoder *encoder, const wordpiece *vocabulary, const text_list *texts, size_t most,
                        embed_result *out)
{
    LOCH_AUTO(tensor) vectors = NULL;
    void *address;
    *out = (embed_result){.vectors = NULL};
    if (wordpiece_get_count(vocabulary) != encoder->model.vocabulary)
        return loch_error_set(LOCH_E_INVALID, NULL, 0, "the vocabulary has %zu pieces, the model %zu",
                              wordpiece_get_count(vocabulary), encoder->model.vocabulary);
    LOCH_RETURN(loch_tensor_create(LOCH_F32, LOCH_SHAPE((int64_t)texts->count, WIDTH), NULL, &vectors));
    LOCH_RETURN(loch_tensor_get_address(vectors, &address));
    int32_t *tokens = malloc(EMBED_BATCH * most * sizeof *tokens);
    loch_status status = tokens ? LOCH_OK : loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for tokens");
    for (size_t i = 0; i < texts->count && status == LOCH_OK; i += EMBED_BATCH)
        status = encode_batch(encoder, vocabulary, texts, i, most, tokens, address, out);
    free(tokens);
    if (status == LOCH_OK) out->vectors = loch_tensor_take(&vectors);
    return status;
}

void embed_rank(const float *vectors, size_t vectors_count, const float *query, size_t count, size_t *indices,
                float *scores)
{
    size_t found = 0;
    for (size_t i = 0; i < vectors_count; i++) {
        float score = 0;
        for (size_t j = 0; j < WIDTH; j++)
            score += vectors[i * WIDTH + j] * query[j];
        size_t at = found < count ? found++ : count;
        for (; at > 0 && scores[at - 1] < score; at--)
            if (at < count) {
                scores[at] = scores[at - 1];
                indices[at] = indices[at - 1];
            }
        if (at < count) {
            scores[at] = score;
            indices[at] = i;
        }
    }
}
