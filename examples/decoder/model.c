/* SPDX-License-Identifier: MIT */
/* The layers. Temporary results of a layer are tensors of the context: they come from the pool and are released at the
 * end of the function, so the next layer reuses their memory without a driver call. */
#include "model.h"
#include "kernels.h"
#include <math.h>
#include <string.h>

/* One run through the model: `count` rows after `start` positions. */
typedef struct model_run {
    const decoder_model *model;
    loch_context *context;
    decoder_cache *cache;
    size_t start, count;
    float *x; /* count by WIDTH: the data that passes from layer to layer */
} model_run;

static const float *weight_of(const model_run *run, size_t layer, size_t kind)
{
    return run->model->weights[FIRST_LAYER + layer * LAYER_WEIGHTS + kind].data;
}

/* Creates a tensor of `rows` by `columns` and returns its elements. */
static loch_status activation(const model_run *run, size_t rows, size_t columns, const char *name, loch_tensor **out,
                              float **data)
{
    void *address;
    LOCH_RETURN(loch_context_create_tensor(run->context, LOCH_F32, LOCH_SHAPE((int64_t)rows, (int64_t)columns), name,
                                           run->model->activations, out));
    LOCH_RETURN(loch_tensor_get_address(*out, &address));
    *data = address;
    return LOCH_OK;
}

/* --- attention --- */

/* Writes keys and values of the new rows directly into the cache. */
static void remember(const model_run *run, size_t layer, const float *normed)
{
    float *keys = cache_keys(run->cache, layer, run->start);
    kernel_matmul(keys, CACHE_STEP, normed, weight_of(run, layer, KEY), run->count, KV_WIDTH, WIDTH);
    kernel_matmul(keys + KV_WIDTH, CACHE_STEP, normed, weight_of(run, layer, VALUE), run->count, KV_WIDTH, WIDTH);
    for (size_t i = 0; i < run->count; i++)
        kernel_rotary(keys + i * CACHE_STEP, KV_HEADS, HEAD, run->start + i);
}

/* Computes one head of the row at `position` from all positions up to its own. */
static void attend(const float *query, const float *keys, size_t position, float *scores, float *mixed)
{
    for (size_t p = 0; p <= position; p++)
        scores[p] = kernel_dot(query, keys + p * CACHE_STEP, HEAD) / sqrtf(HEAD);
    kernel_softmax(scores, position + 1);
    memset(mixed, 0, HEAD * sizeof *mixed);
    for (size_t p = 0; p <= position; p++)
        kernel_mix(mixed, scores[p], keys + p * CACHE_STEP + KV_WIDTH, HEAD);
}

static double attention_flops(const model_run *run)
{
    const double n = (double)run->count, pairs = n * (double)run->start + n * (n + 1) / 2;
    return 4.0 * n * WIDTH * (WIDTH + KV_WIDTH) + 4.0 * pairs * WIDTH;
}

static loch_status attention(const model_run *run, size_t layer)
{
    LOCH_SPAN(run->model->timeline, "attention", .level = 1, .flops = attention_flops(run));
    LOCH_AUTO(tensor) normed_tensor = NULL;
    LOCH_AUTO(tensor) query_tensor = NULL;
    LOCH_AUTO(tensor) mixed_tensor = NULL;
    LOCH_AUTO(tensor) scores_tensor = NULL;
    float *normed, *query, *mixed, *scores;
    LOCH_RETURN(activation(run, run->count, WIDTH, "normed", &normed_tensor, &normed));
    LOCH_RETURN(activation(run, run->count, WIDTH, "query", &query_tensor, &query));
    LOCH_RETURN(activation(run, run->count, WIDTH, "mixed", &mixed_tensor, &mixed));
    LOCH_RETURN(activation(run, 1, run->start + run->count, "scores", &scores_tensor, &scores));

    kernel_rmsnorm(normed, run->x, weight_of(run, layer, ATTENTION_NORM), run->count, WIDTH);
    kernel_matmul(query, WIDTH, normed, weight_of(run, layer, QUERY), run->count, WIDTH, WIDTH);
    remember(run, layer, normed);
    for (size_t i = 0; i < run->count; i++) {
        kernel_rotary(query + i * WIDTH, HEADS, HEAD, run->start + i);
        for (size_t h = 0; h < HEADS; h++) {
            const float *keys = cache_keys(run->cache, layer, 0) + h / (HEADS / KV_HEADS) * HEAD;
            const size_t at = i * WIDTH + h * HEAD;
            attend(query + at, keys, run->start + i, scores, mixed + at);
        }
    }
    kernel_matmul(normed, WIDTH, mixed, weight_of(run, layer, OUTPUT), run->count, WIDTH, WIDTH);
    kernel_add(run->x, normed, run->count * WIDTH);
    return LOCH_OK;
}

/* --- layers and output --- */

static loch_status mlp(const model_run *run, size_t layer)
{
    LOCH_SPAN(run->model->timeline, "mlp", .level = 1, .flops = 6.0 * (double)run->count * WIDTH * MLP);
    LOCH_AUTO(tensor) normed_tensor = NULL;
    LOCH_AUTO(tensor) gate_tensor = NULL;
    LOCH_AUTO(tensor) up_tensor = NULL;
    float *normed, *gate, *up;
    LOCH_RETURN(activation(run, run->count, WIDTH, "normed", &normed_tensor, &normed));
    LOCH_RETURN(activation(run, run->count, MLP, "gate", &gate_tensor, &gate));
    LOCH_RETURN(activation(run, run->count, MLP, "up", &up_tensor, &up));

    kernel_rmsnorm(normed, run->x, weight_of(run, layer, MLP_NORM), run->count, WIDTH);
    kernel_matmul(gate, MLP, normed, weight_of(run, layer, GATE), run->count, MLP, WIDTH);
    kernel_matmul(up, MLP, normed, weight_of(run, layer, UP), run->count, MLP, WIDTH);
    kernel_silu(gate, up, run->count * MLP);
    kernel_matmul(normed, WIDTH, gate, weight_of(run, layer, DOWN), run->count, WIDTH, MLP);
    kernel_add(run->x, normed, run->count * WIDTH);
    return LOCH_OK;
}

static loch_status head(const model_run *run, loch_tensor **out)
{
    LOCH_SPAN(run->model->timeline, "head", .level = 1, .flops = 2.0 * (double)run->count * WIDTH * VOCABULARY);
    const decoder_weight *weights = run->model->weights;
    float *logits;
    LOCH_RETURN(activation(run, run->count, VOCABULARY, "logits", out, &logits));
    kernel_rmsnorm(run->x, run->x, weights[FINAL_NORM].data, run->count, WIDTH);
    kernel_matmul(logits, VOCABULARY, run->x, weights[HEAD_MATRIX].data, run->count, VOCABULARY, WIDTH);
    return LOCH_OK;
}

loch_status model_forward(const decoder_model *model, loch_context *context, decoder_cache *cache,
                          const uint8_t *tokens, size_t count, loch_tensor **logits)
{
    model_run run = {.model = model, .context = context, .cache = cache, .start = cache->length, .count = count};
    LOCH_AUTO(tensor) flow = NULL;
    *logits = NULL;
    LOCH_RETURN(cache_grow(cache, run.start + count));
    LOCH_RETURN(activation(&run, count, WIDTH, "flow", &flow, &run.x));
    for (size_t i = 0; i < count; i++)
        memcpy(run.x + i * WIDTH, model->weights[EMBEDDING].data + tokens[i] * WIDTH, WIDTH * sizeof(float));
    for (size_t layer = 0; layer < LAYERS; layer++) {
        LOCH_RETURN(attention(&run, layer));
        LOCH_RETURN(mlp(&run, layer));
    }
    return head(&run, logits);
}
