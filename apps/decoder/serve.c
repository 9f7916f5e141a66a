/* SPDX-License-Identifier: MIT */
/* Each worker opens its own context, because contexts belong to threads. Each request has its own cache. All of them
 * read the same weights. Tokens are the largest logits, or samples. */
#include "serve.h"
#include "device.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const prompts[] = {
    "The loch lay still below the hills,",
    "Memory is",
    "A pool of memory is like a lake:",
    "To allocate is human;",
    "x",
    "Once upon a time there was a block of 64 bytes",
};

#define PROMPTS (sizeof prompts / sizeof *prompts)

typedef struct serve_queue {
    const decoder_model *model;
    const serve_options *options;
    loch_seat seat;
    decoder_request *requests;
    size_t count;
    atomic_size_t next; /* relaxed: it only distributes the requests */
    cache_family caches;
} serve_queue;

loch_status request_init(decoder_request *request, size_t number, size_t tokens)
{
    const char *prompt = prompts[number % PROMPTS];
    *request = (decoder_request){.number = number, .prompt = strlen(prompt)};
    request->length = request->prompt;
    request->wanted = request->prompt + tokens;
    request->text = malloc(request->wanted * sizeof *request->text);
    if (!request->text) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for the text of a request");
    for (size_t i = 0; i < request->prompt; i++)
        request->text[i] = (unsigned char)prompt[i];
    return LOCH_OK;
}

void request_end(decoder_request *request)
{
    free(request->text);
    request->text = NULL;
}

size_t request_longest(void)
{
    size_t longest = 0;
    for (size_t i = 0; i < PROMPTS; i++)
        if (strlen(prompts[i]) > longest) longest = strlen(prompts[i]);
    return longest;
}

/* Chooses the token behind a position, as the kernels do. */
static int32_t choose(const serve_options *options, size_t number, size_t position, const float *logits, size_t count)
{
    int32_t best = 0;
    float best_score = 0;
    for (int32_t i = 0; i < (int32_t)count; i++) {
        const float score = score_of(logits[i], options->temperature, options->seed, (int)number, (int)position, i);
        if (i && score <= best_score) continue;
        best = i;
        best_score = score;
    }
    return best;
}

/* Runs the tokens that are not in the cache yet, and appends the next token. */
static loch_status step(const serve_queue *queue, loch_context *context, decoder_cache *cache, decoder_request *request)
{
    const size_t start = cache->length, count = request->length - start;
    LOCH_SPAN(queue->model->timeline, start ? "decode" : "prefill", .allocator = cache->pool);
    LOCH_AUTO(tensor) tensor = NULL;
    void *address;
    LOCH_RETURN(model_forward(queue->model, context, cache, request->text + start, count, &tensor));
    LOCH_RETURN(loch_tensor_get_address(tensor, &address));
    const float *logits = address;
    const size_t row = queue->model->shape.vocabulary;
    if (request->logits) memcpy(request->logits + start * row, logits, count * row * sizeof *logits);
    const size_t last = request->length - 1;
    request->text[request->length++] = choose(queue->options, request->number, last, logits + (count - 1) * row, row);
    return LOCH_OK;
}

static loch_status generate(const serve_queue *queue, loch_context *context, decoder_cache *cache,
                            decoder_request *request)
{
    while (request->length < request->wanted)
        LOCH_RETURN(step(queue, context, cache, request));
    request->cache_bytes = cache->bytes;
    return LOCH_OK;
}

static loch_status answer(serve_queue *queue, loch_context *context, decoder_request *request)
{
    LOCH_SPAN(queue->model->timeline, "request");
    char name[32];
    decoder_cache cache;
    snprintf(name, sizeof name, "request %zu", request->number);
    loch_status status = cache_open(&cache, &queue->caches, context, name);
    if (status == LOCH_OK) status = generate(queue, context, &cache, request);
    const loch_status closed = cache_close(&cache, context);
    return status == LOCH_OK ? closed : status;
}

/* The task of a worker: serves requests until the queue is empty. A request that fails does not end the task. */
static loch_status work(void *user)
{
    serve_queue *queue = user;
    const loch_context_options options = {
        .size = sizeof options, .name = "worker", .seats = &queue->seat, .seats_count = 1};
    loch_context *context;
    LOCH_RETURN(loch_context_open(queue->model->engine, &options, &context));
    loch_status first = LOCH_OK;
    loch_error why = {.status = LOCH_OK};
    size_t i;
    while ((i = atomic_fetch_add_explicit(&queue->next, 1, memory_order_relaxed)) < queue->count) {
        const loch_status status = answer(queue, context, &queue->requests[i]);
        if (status == LOCH_OK || first != LOCH_OK) continue;
        first = status;
        why = *loch_error_get();
    }
    const loch_status ended = loch_context_close(context);
    if (first == LOCH_OK) return ended;
    return loch_error_set(first, NULL, 0, "%s", why.sentence);
}

loch_status serve(const decoder_model *model, loch_seat seat, decoder_request *requests, size_t count,
                  const serve_options *options, serve_result *result)
{
    loch_workers *workers = loch_engine_get_workers(model->engine, seat);
    serve_queue queue = {.model = model, .options = options, .seat = seat, .requests = requests, .count = count};
    loch_status status = family_open(&queue.caches, &model->shape, options->cache, sizeof(float),
                                     loch_engine_get_allocator(model->engine, seat), NULL);
    for (size_t i = 0; i < loch_workers_get_threads(workers) && status == LOCH_OK; i++)
        status = loch_workers_run(workers, work, &queue, NULL);
    const loch_status worked = loch_workers_wait(workers, NULL);
    result->caches_peak_bytes = atomic_load_explicit(&queue.caches.peak_bytes, memory_order_relaxed);
    const loch_status closed = family_close(&queue.caches);
    if (status == LOCH_OK) status = worked;
    return status == LOCH_OK ? closed : status;
}
