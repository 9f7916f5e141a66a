/* SPDX-License-Identifier: MIT */
#include "model.h"

#include <gguf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t next_random(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state;
}

/* Adds one tensor of random numbers with a spread that keeps the sums of a row near 1. */
static void add_tensor(struct gguf_context *file, struct ggml_context *memory, const char *name, enum ggml_type type,
                       int columns, int rows, uint32_t *state)
{
    struct ggml_tensor *tensor =
        rows ? ggml_new_tensor_2d(memory, type, columns, rows) : ggml_new_tensor_1d(memory, GGML_TYPE_F32, columns);
    const int64_t count = ggml_nelements(tensor);
    float *numbers = malloc((size_t)count * sizeof *numbers);
    const float spread = rows ? 3.0f / (float)(columns / 16) : 0.2f;
    for (int64_t i = 0; i < count; i++)
        numbers[i] = (rows ? 0.0f : 1.0f) + spread * ((float)(next_random(state) >> 8) / (float)(1 << 24) - 0.5f);
    if (tensor->type == GGML_TYPE_F32)
        memcpy(tensor->data, numbers, (size_t)count * sizeof *numbers);
    else
        ggml_quantize_chunk(tensor->type, numbers, tensor->data, 0, rows, columns, NULL);
    free(numbers);
    ggml_set_name(tensor, name);
    gguf_add_tensor(file, tensor);
}

size_t model_write(const char *path, model_shape shape, uint32_t seed)
{
    static const char *const matrices[] = {"attn_q",   "attn_k", "attn_v",  "attn_output",
                                           "ffn_gate", "ffn_up", "ffn_down"};
    uint32_t state = seed * 2654435761u | 1;
    const size_t numbers = (size_t)shape.words * shape.width * 2 +
                           (size_t)shape.layers * ((size_t)shape.width * shape.width * 4 +
                                                   (size_t)shape.width * shape.hidden * 3 + 2 * (size_t)shape.width);
    struct ggml_init_params params = {.mem_size = numbers * 4 + ((size_t)shape.layers * 9 + 16) * 1024};
    struct ggml_context *memory = ggml_init(params);
    struct gguf_context *file = gguf_init_empty();
    if (!memory || !file) return 0;
    gguf_set_val_str(file, "general.architecture", "llama");
    gguf_set_val_str(file, "tokenizer.ggml.model", "no_vocab");
    gguf_set_val_u32(file, "llama.vocab_size", (uint32_t)shape.words);
    gguf_set_val_u32(file, "llama.context_length", 131072);
    gguf_set_val_u32(file, "llama.embedding_length", (uint32_t)shape.width);
    gguf_set_val_u32(file, "llama.block_count", (uint32_t)shape.layers);
    gguf_set_val_u32(file, "llama.feed_forward_length", (uint32_t)shape.hidden);
    gguf_set_val_u32(file, "llama.attention.head_count", (uint32_t)shape.heads);
    gguf_set_val_u32(file, "llama.attention.head_count_kv", (uint32_t)shape.heads);
    gguf_set_val_u32(file, "llama.rope.dimension_count", (uint32_t)(shape.width / shape.heads));
    gguf_set_val_f32(file, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    add_tensor(file, memory, "token_embd.weight", shape.type, shape.width, shape.words, &state);
    add_tensor(file, memory, "output_norm.weight", GGML_TYPE_F32, shape.width, 0, &state);
    add_tensor(file, memory, "output.weight", shape.type, shape.width, shape.words, &state);
    for (int layer = 0; layer < shape.layers; layer++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_norm.weight", layer);
        add_tensor(file, memory, name, GGML_TYPE_F32, shape.width, 0, &state);
        snprintf(name, sizeof name, "blk.%d.ffn_norm.weight", layer);
        add_tensor(file, memory, name, GGML_TYPE_F32, shape.width, 0, &state);
        for (int i = 0; i < 7; i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", layer, matrices[i]);
            add_tensor(file, memory, name, shape.type, i == 6 ? shape.hidden : shape.width,
                       i == 4 || i == 5 ? shape.hidden : shape.width, &state);
        }
    }
    size_t bytes = 0;
    for (struct ggml_tensor *one = ggml_get_first_tensor(memory); one; one = ggml_get_next_tensor(memory, one))
        bytes += ggml_nbytes(one);
    const bool is_written = gguf_write_to_file(file, path, false);
    gguf_free(file);
    ggml_free(memory);
    return is_written ? bytes : 0;
}

int model_decode(struct llama_context *context, const llama_token *tokens, int count, int position, int sequence)
{
    struct llama_batch batch = llama_batch_init(count, 0, 1);
    for (int i = 0; i < count; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = position + i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = sequence;
        batch.logits[i] = i == count - 1;
    }
    batch.n_tokens = count;
    const int result = llama_decode(context, batch);
    llama_batch_free(batch);
    return result;
}

void model_prompt(llama_token *tokens, int count, int words, uint32_t seed)
{
    uint32_t state = seed * 2654435761u | 1;
    for (int i = 0; i < count; i++)
        tokens[i] = (llama_token)(next_random(&state) % (uint32_t)words);
}

bool model_generate(struct llama_context *context, const llama_token *prompt, int count, int steps, int words,
                    float *logits)
{
    struct llama_sampler *sampler = llama_sampler_chain_init(llama_sampler_chain_default_params());
    llama_sampler_chain_add(sampler, llama_sampler_init_temp(0.8f));
    llama_sampler_chain_add(sampler, llama_sampler_init_dist(1234));
    int result = model_decode(context, prompt, count, 0, 0);
    for (int step = 0; result == 0 && step < steps; step++) {
        memcpy(logits + (size_t)step * words, llama_get_logits_ith(context, -1), (size_t)words * sizeof *logits);
        const llama_token token = llama_sampler_sample(sampler, context, -1);
        result = model_decode(context, &token, 1, count + step, 0);
    }
    llama_sampler_free(sampler);
    return result == 0;
}
