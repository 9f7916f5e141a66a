/* SPDX-License-Identifier: MIT */
/* Continuous batching. A slot has one request at a time; every step computes one position of each busy slot: a token of
 * the prompt while there are some, then the token that the step before chose. The device keeps tokens and positions, so
 * the host does not wait for a step: it only adds memory to caches in front of it. The host waits when a request ends,
 * reads its tokens, and puts the next request into the slot. */
#include "batch.h"
#include <stdio.h>
#include <time.h>

#define WARM_STEPS 8 /* that are not measured */

typedef struct batch_slot {
    loch_context *context; /* has the child pool of the request */
    decoder_cache cache;
    decoder_request *request;         /* NULL: the slot is free */
    size_t pages_told;                /* pages that the device knows */
    int32_t position, prompt, number; /* position: of the next step. Copies are queued from here, so they stay */
    uint64_t address;                 /* of a grown cache */
} batch_slot;

typedef struct batch {
    decoder_step step;
    cache_family caches;
    batch_slot slots[BATCH_MAX];
    size_t count; /* slots */
    serve_result *result;
    size_t steps, measured_steps, measured_tokens, cache_positions;
    double start; /* of the measured steps */
} batch;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Queues a copy of `count` elements to place `index` of a tensor. */
static loch_status put(const batch *b, loch_tensor *tensor, size_t index, const void *from, size_t count)
{
    const size_t element = loch_dtype_bytes(loch_tensor_get_dtype(tensor));
    void *to;
    LOCH_RETURN(loch_tensor_get_address(tensor, &to));
    return loch_copy_on((char *)to + index * element, from, count * element, b->step.stream);
}

/* --- requests --- */

static loch_status slot_admit(batch *b, size_t index, decoder_request *request)
{
    batch_slot *slot = &b->slots[index];
    const size_t context = b->step.model->shape.context;
    char name[32];
    snprintf(name, sizeof name, "request %zu", request->number);
    slot->request = request;
    slot->pages_told = 0;
    slot->position = 0;
    slot->prompt = (int32_t)request->prompt;
    slot->number = (int32_t)request->number;
    LOCH_RETURN(cache_open(&slot->cache, &b->caches, slot->context, name));
    slot->address = (uint64_t)(uintptr_t)slot->cache.rows;
    LOCH_RETURN(put(b, b->step.texts, index * context, request->text, request->prompt));
    LOCH_RETURN(put(b, b->step.prompts, index, &slot->prompt, 1));
    LOCH_RETURN(put(b, b->step.numbers, index, &slot->number, 1));
    LOCH_RETURN(put(b, b->step.caches, index, &slot->address, 1));
    return put(b, b->step.positions, index, &slot->position, 1);
}

/* Makes room for the position of the next step, and tells the device about new pages. */
static loch_status slot_prepare(batch *b, size_t index)
{
    batch_slot *slot = &b->slots[index];
    const size_t pages_each = (size_t)b->step.slots.pages_each, told = slot->pages_told;
    LOCH_RETURN(cache_grow(&slot->cache, (size_t)slot->position + 1));
    slot->pages_told = slot->cache.pages_count;
    if (told == slot->pages_told) return LOCH_OK;
    return put(b, b->step.pages, index * pages_each + told, slot->cache.pages + told, slot->pages_told - told);
}

/* Copies the logits of the position that was computed last, for comparisons. Waits. */
static loch_status slot_read_logits(const batch *b, size_t index, size_t position)
{
    const size_t row = b->step.model->shape.vocabulary;
    void *from;
    LOCH_RETURN(loch_tensor_get_address(b->step.logits, &from));
    LOCH_RETURN(loch_stream_sync(b->step.stream));
    return loch_copy(b->slots[index].request->logits + position * row, (float *)from + index * row,
                     row * sizeof(float));
}

/* Reads the memory of the pool while all caches are there. */
static loch_status read_memory(const batch *b)
{
    loch_engine_info info = {.size = sizeof info};
    LOCH_RETURN(loch_engine_get_info(b->step.model->engine, LOCH_SEAT(0), &info));
    b->result->reserved_bytes = info.reserved_bytes;
    b->result->held_bytes = info.used_bytes;
    return LOCH_OK;
}

/* Ends the request of a slot. The stream has been waited for. */
static loch_status slot_finish(batch *b, size_t index)
{
    batch_slot *slot = &b->slots[index];
    decoder_request *request = slot->request;
    void *texts;
    slot->request = NULL;
    slot->position = -1;
    LOCH_RETURN(loch_tensor_get_address(b->step.texts, &texts));
    LOCH_RETURN(loch_copy(request->text, (int32_t *)texts + index * b->step.model->shape.context,
                          request->wanted * sizeof *request->text));
    request->length = request->wanted;
    request->cache_bytes = slot->cache.bytes;
    LOCH_RETURN(put(b, b->step.positions, index, &slot->position, 1));
    return cache_close(&slot->cache, slot->context);
}

/* --- steps --- */

static void measure(batch *b, size_t busy)
{
    if (b->steps < WARM_STEPS) return;
    b->measured_steps++;
    b->measured_tokens += busy;
    for (size_t i = 0; i < b->count; i++)
        if (b->slots[i].request) b->cache_positions += (size_t)b->slots[i].position + 1;
}

static void measure_end(batch *b)
{
    const decoder_model *model = b->step.model;
    if (!b->measured_steps || b->result->step_seconds > 0) return;
    const double steps = (double)b->measured_steps;
    size_t weights = 0; /* all but the embedding, of which a step reads a row a slot */
    for (size_t i = 0; i < model->weights_count; i++)
        if (i != EMBEDDING) weights += loch_tensor_get_bytes(model->weights[i].tensor);
    const size_t row = shape_cache_step(&model->shape) * loch_dtype_bytes(model->dtype);
    b->result->step_seconds = (now() - b->start) / steps;
    b->result->slots_busy = (double)b->measured_tokens / steps;
    b->result->read_bytes = weights + (size_t)((double)(b->cache_positions * row) / steps);
}

/* Times the kernels at the positions that the slots have now. */
static loch_status batch_profile(batch *b)
{
    measure_end(b);
    for (size_t i = 0; i < b->count; i++)
        if (b->slots[i].request) LOCH_RETURN(slot_prepare(b, i));
    return step_profile(&b->step);
}

/* One step of all slots, and the end of the requests that are complete with it. */
static loch_status batch_step(batch *b, size_t *done)
{
    size_t busy = 0, ended = 0;
    for (size_t i = 0; i < b->count; i++) {
        if (!b->slots[i].request) continue;
        LOCH_RETURN(slot_prepare(b, i));
        busy++;
    }
    if (b->steps == WARM_STEPS) {
        LOCH_RETURN(loch_stream_sync(b->step.stream));
        b->start = now();
    }
    LOCH_RETURN(step_run(&b->step));
    measure(b, busy);
    b->steps++;
    for (size_t i = 0; i < b->count; i++) {
        batch_slot *slot = &b->slots[i];
        if (!slot->request) continue;
        if (slot->request->logits) LOCH_RETURN(slot_read_logits(b, i, (size_t)slot->position));
        ended += (size_t)++slot->position + 1 == slot->request->wanted;
    }
    if (!ended) return LOCH_OK;
    LOCH_RETURN(loch_stream_sync(b->step.stream));
    LOCH_RETURN(read_memory(b));
    if (b->step.options->profile && *done == 0) LOCH_RETURN(batch_profile(b));
    for (size_t i = 0; i < b->count; i++)
        if (b->slots[i].request && (size_t)b->slots[i].position + 1 == b->slots[i].request->wanted)
            LOCH_RETURN(slot_finish(b, i));
    *done += ended;
    return LOCH_OK;
}

static loch_status batch_run(batch *b, decoder_request *requests, size_t count)
{
    size_t next = 0, done = 0;
    while (done < count) {
        for (size_t i = 0; i < b->count && next < count; i++)
            if (!b->slots[i].request) LOCH_RETURN(slot_admit(b, i, &requests[next++]));
        LOCH_RETURN(batch_step(b, &done));
    }
    LOCH_RETURN(loch_stream_sync(b->step.stream));
    measure_end(b);
    return LOCH_OK;
}

/* --- opening and closing --- */

static loch_status batch_open(batch *b, const decoder_model *model, loch_context *context, size_t longest,
                              const serve_options *options)
{
    const loch_context_options how = {.size = sizeof how, .name = "slot"};
    loch_stream *stream;
    /* Memory that loading needed and serving does not goes back to the device. */
    LOCH_RETURN(loch_allocator_trim(loch_engine_get_allocator(model->engine, LOCH_SEAT(0)), 0, NULL));
    LOCH_RETURN(loch_context_require_stream(context, &stream));
    LOCH_RETURN(family_open(&b->caches, &model->shape, options->cache, loch_dtype_bytes(model->dtype),
                            loch_engine_get_allocator(model->engine, LOCH_SEAT(0)), stream));
    LOCH_RETURN(step_open(&b->step, model, context, options, &b->caches, longest));
    for (size_t i = 0; i < b->count; i++) {
        LOCH_RETURN(loch_context_open(model->engine, &how, &b->slots[i].context));
        LOCH_RETURN(loch_context_set_stream(b->slots[i].context, b->step.stream));
    }
    return LOCH_OK;
}

/* Returns the first failure of all that has to be closed. */
static loch_status batch_close(batch *b, loch_status status)
{
    step_close(&b->step); /* waits for the stream */
    for (size_t i = 0; i < b->count; i++) {
        const loch_status closed = cache_close(&b->slots[i].cache, b->slots[i].context);
        const loch_status ended = loch_context_close(b->slots[i].context);
        if (status == LOCH_OK) status = closed == LOCH_OK ? ended : closed;
    }
    b->result->caches_peak_bytes = atomic_load_explicit(&b->caches.peak_bytes, memory_order_relaxed);
    const loch_status closed = family_close(&b->caches);
    return status == LOCH_OK ? closed : status;
}

loch_status batch_serve(const decoder_model *model, loch_context *context, decoder_request *requests, size_t count,
                        const serve_options *options, serve_result *result)
{
    const loch_context_options how = {.size = sizeof how, .name = "batch"};
    loch_context *own; /* its tensors do not move, unlike those of the context that loads weights */
    batch b = {.result = result, .count = options->batch};
    size_t longest = 0;
    for (size_t i = 0; i < count; i++)
        if (requests[i].wanted > longest) longest = requests[i].wanted;
    LOCH_SPAN(model->timeline, "serve");
    LOCH_RETURN(loch_context_open(loch_context_get_engine(context), &how, &own));
    loch_status status = batch_open(&b, model, own, longest, options);
    if (status == LOCH_OK) status = batch_run(&b, requests, count);
    const loch_error why = *loch_error_get();
    const loch_status closed = batch_close(&b, status);
    const loch_status ended = loch_context_close(own);
    if (status != LOCH_OK) return loch_error_set(status, why.driver, why.driver_code, "%s", why.sentence);
    return closed == LOCH_OK ? ended : closed;
}
