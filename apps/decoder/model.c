/* SPDX-License-Identifier: MIT */
/* The layers on the host. Temporary results of a layer are tensors of the context: they come from the pool and are
 * released at the end of the function, so the next layer reuses their memory without a driver call. */
#include "model.h"
#include "kernels.h"
#include <math.h>
#include <string.h>

/* One run through the model: `count` rows after `start` positions. */
typedef struct model_run {
    const decoder_model *model;
    const decoder_shape *shape;
    loch_context *context;
    decoder_cache *cache;
    size_t start, count;
    float *x; /* count by width: the data that passes from layer to layer */
} model_run;

static const float *weight_of(const model_run *run, size_t layer, size_t kind)
{
    return model_layer(run->model, layer, kind)->data;
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
    const size_t width = run->shape->width, kv_width = shape_kv_width(run->shape);
    for (size_t i = 0; i < run->count; i++, normed += width) {
        float *keys = cache_keys(run->cache, layer, run->start + i);
        kernel_matmul(keys, normed, weight_of(run, layer, KEY), 1, kv_width, width);
        kernel_matmul(keys + kv_width, normed, weight_of(run, layer, VALUE), 1, kv_width, width);
        kernel_rotary(keys, run->shape->kv_heads, run->shape->head, run->start + i);
    }
}

/* Computes head `h` of the row at `position` from all positions up to its own. */
static void attend(const model_run *run, size_t layer, size_t h, const float *query, size_t position, float *scores,
                   float *mixed)
{
    const decoder_shape *shape = run->shape;
    const size_t head = shape->head, at = h / (shape->heads / shape->kv_heads) * head;
    for (size_t p = 0; p <= position; p++)
        scores[p] = kernel_dot(query, (float *)cache_keys(run->cache, layer, p) + at, head) / sqrtf((float)head);
    kernel_softmax(scores, position + 1);
    memset(mixed, 0, head * sizeof *mixed);
    for (size_t p = 0; p <= position; p++)
        kernel_mix(mixed, scores[p], (float *)cache_keys(run->cache, layer, p) + shape_kv_width(shape) + at, head);
}

static double attention_flops(const model_run *run)
{
    const double n = (double)run->count, pairs = n * (double)run->start + n * (n + 1) / 2;
    const double width = (double)run->shape->width;
    return 4.0 * n * width * (width + (double)shape_kv_width(run->shape)) + 4.0 * pairs * width;
}

static loch_status attention(const model_run *run, size_t layer)
{
    LOCH_SPAN(run->model->timeline, "attention", .level = 1, .flops = attention_flops(run));
    LOCH_AUTO(tensor) normed_tensor = NULL;
    LOCH_AUTO(tensor) query_tensor = NULL;
    LOCH_AUTO(tensor) mixed_tensor = NULL;
    LOCH_AUTO(tensor) scores_tensor = NULL;
    const decoder_shape *shape = run->shape;
    const size_t width = shape->width;
    float *normed, *query, *mixed, *scores;
    LOCH_RETURN(activation(run, run->count, width, "normed", &normed_tensor, &normed));
    LOCH_RETURN(activation(run, run->count, width, "query", &query_tensor, &query));
    LOCH_RETURN(activation(run, run->count, width, "mixed", &mixed_tensor, &mixed));
    LOCH_RETURN(activation(run, 1, run->start + run->count, "scores", &scores_tensor, &scores));

    kernel_rmsnorm(normed, run->x, weight_of(run, layer, ATTENTION_NORM), run->count, width);
    kernel_matmul(query, normed, weight_of(run, layer, QUERY), run->count, width, width);
    remember(run, layer, normed);
    for (size_t i = 0; i < run->count; i++) {
        kernel_rotary(query + i * width, shape->heads, shape->head, run->start + i);
        for (size_t h = 0; h < shape->heads; h++) {
            const size_t at = i * width + h * shape->head;
            attend(run, layer, h, query + at, run->start + i, scores, mixed + at);
        }
    }
    kernel_matmul(normed, mixed, weight_of(run, layer, OUTPUT), run->count, width, width);
    kernel_add(run->x, normed, run->count * width);
    return LOCH_OK;
}

/* --- layers and output --- */

static loch_status mlp(const model_run *run, size_t layer)
{
    const size_t width = run->shape->width, inner = run->shape->mlp;
    LOCH_SPAN(run->model->timeline, "mlp", .level = 1,
              .flops = 6.0 * (double)run->count * (double)width * (double)inner);
    LOCH_AUTO(tensor) normed_tensor = NULL;
    LOCH_AUTO(tensor) gate_tensor = NULL;
    LOCH_AUTO(tensor) up_tensor = NULL;
    float *normed, *gate, *up;
    LOCH_RETURN(activation(run, run->count, width, "normed", &normed_tensor, &normed));
    LOCH_RETURN(activation(run, run->count, inner, "gate", &gate_tensor, &gate));
    LOCH_RETURN(activation(run, run->count, inner, "up", &up_tensor, &up));

    kernel_rmsnorm(normed, run->x, weight_of(run, layer, MLP_NORM), run->count, width);
    kernel_matmul(gate, normed, weight_of(run, layer, GATE), run->count, inner, width);
    kernel_matmul(up, normed, weight_of(run, layer, UP), run->count, inner, width);
    kernel_silu(gate, up, run->count * inner);
    kernel_matmul(normed, gate, weight_of(run, layer, DOWN), run->count, width, inner);
    kernel_add(run->x, normed, run->count * width);
    return LOCH_OK;
}

static loch_status head(const model_run *run, loch_tensor **out)
{
    const size_t width = run->shape->width, vocabulary = run->shape->vocabulary;
    LOCH_SPAN(run->model->timeline, "head", .level = 1,
              .flops = 2.0 * (double)run->count * (double)width * (double)vocabulary);
    float *logits;
    LOCH_RETURN(activation(run, run->count, vocabulary, "logits", out, &logits));
    kernel_rmsnorm(run->x, run->x, model_final_norm(run->model)->data, run->count, width);
    kernel_matmul(logits, run->x, model_head(run->model)->data, run->count, vocabulary, width);
    return LOCH_OK;
}

loch_status model_forward(const decoder_model *model, loch_context *context, decoder_cache *cache,
                          const int32_t *tokens, size_t count, loch_tensor **logits)
{
    model_run run = {.model = model,
                     .shape = &model->shape,
                     .context = context,
                     .cache = cache,
                     .start = cache->length,
                     .count = count};
    const size_t width = model->shape.width;
    LOCH_AUTO(tensor) flow = NULL;
    *logits = NULL;
    LOCH_RETURN(cache_grow(cache, run.start + count));
    LOCH_RETURN(activation(&run, count, width, "flow", &flow, &run.x));
    for (size_t i = 0; i < count; i++)
        memcpy(run.x + i * width, (const float *)model->weights[EMBEDDING].data + (size_t)tokens[i] * width,
               width * sizeof(float));
    for (size_t layer = 0; layer < model->shape.layers; layer++) {
        LOCH_RETURN(attention(&run, layer));
        LOCH_RETURN(mlp(&run, layer));
    }
    return head(&run, logits);
}
