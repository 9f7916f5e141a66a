/* SPDX-License-Identifier: MIT */
/* A step is 5 kernels a layer and 3 more. They are queued once, into a graph; a launch of the graph costs the host
 * what a launch of one kernel costs. The graph finds tokens, positions and caches in memory of the device, so it serves
 * every step. */
#include "batch.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define ATTEND_THREADS 256
#define ATTEND_POSITIONS 512 /* that a block of attention should have at least */
#define PARTS_MAX 16
#define SPLIT_TASKS 1100

/* Made from kernels.ptx when the example is built. */
extern const unsigned char decoder_kernels_ptx[];
extern const size_t decoder_kernels_ptx_bytes;

/* --- launches --- */

static uint32_t flags_of(const decoder_step *step)
{
    return step->options->early ? LOCH_LAUNCH_EARLY : 0;
}

/* What a matrix product works on; weights that it does not need are NULL. */
typedef struct step_product {
    int kind;
    size_t layer, columns, tasks; /* a task is two rows */
    loch_tensor *input;
    const decoder_weight *norm, *first, *second, *third;
    loch_tensor *output;
    device_ahead ahead;
} step_product;

static loch_argument weight_argument(const decoder_weight *weight)
{
    return weight ? loch_argument_read(weight->tensor) : loch_argument_address(NULL);
}

/* Chooses what a kernel fetches ahead: the first parts of up to three weights, together as much as the options say. */
static device_ahead fetch(const decoder_step *step, const decoder_weight *first, const decoder_weight *second,
                          const decoder_weight *third)
{
    const decoder_weight *const weights[] = {first, second, third};
    device_ahead ahead = {{0}, {0}};
    size_t all = 0;
    const size_t most = step->options->ahead << 20;
    for (int i = 0; i < 3; i++)
        if (weights[i]) all += loch_tensor_get_bytes(weights[i]->tensor);
    for (int i = 0; i < 3 && most; i++) {
        if (!weights[i]) continue;
        const size_t bytes = loch_tensor_get_bytes(weights[i]->tensor);
        const double share = all > most ? (double)most / (double)all : 1;
        ahead.from[i] = (unsigned long long)(uintptr_t)weights[i]->data;
        ahead.bytes[i] = (unsigned)((size_t)((double)bytes * share) / 16 * 16);
    }
    return ahead;
}

static loch_status product(const decoder_step *step, const step_product *product)
{
    const size_t group = 32 * 16 / loch_dtype_bytes(step->model->dtype); /* columns that a warp loads at a time */
    const size_t padded = (product->columns + group - 1) / group * group;
    const size_t warps = step->options->warps;
    /* Few tasks are shared by two warps each, so that enough loads are in flight. */
    const size_t split = product->tasks <= SPLIT_TASKS && warps % 2 == 0 ? 2 : 1;
    const device_product what = {.kind = product->kind,
                                 .columns = (int)product->columns,
                                 .tasks = (int)product->tasks,
                                 .layer = (int)product->layer,
                                 .split = (int)split};
    const loch_argument arguments[] = {loch_argument_bytes(&what, sizeof what),
                                       loch_argument_bytes(&step->shape, sizeof step->shape),
                                       loch_argument_bytes(&step->slots, sizeof step->slots),
                                       loch_argument_bytes(&product->ahead, sizeof product->ahead),
                                       loch_argument_read(product->input),
                                       weight_argument(product->norm),
                                       weight_argument(product->first),
                                       weight_argument(product->second),
                                       weight_argument(product->third),
                                       loch_argument_write(product->output)};
    const loch_launch_options how = {.size = sizeof how,
                                     .grid = {(uint32_t)((product->tasks * split + warps - 1) / warps)},
                                     .block = {(uint32_t)(warps * 32)},
                                     .shared_bytes = step->rows * padded * sizeof(float),
                                     .flags = flags_of(step)};
    return loch_kernel_launch(step->product, arguments, sizeof arguments / sizeof *arguments, step->stream, &how);
}

static loch_status attend(const decoder_step *step, size_t layer)
{
    const device_ahead ahead =
        fetch(step, model_layer(step->model, layer, GATE), model_layer(step->model, layer, UP), NULL);
    const loch_argument arguments[] = {loch_argument_scalar(LOCH_I32, loch_scalar_of((int)layer)),
                                       loch_argument_bytes(&step->shape, sizeof step->shape),
                                       loch_argument_bytes(&step->slots, sizeof step->slots),
                                       loch_argument_bytes(&ahead, sizeof ahead),
                                       loch_argument_read(step->query),
                                       loch_argument_write(step->mixed),
                                       loch_argument_write(step->partial),
                                       loch_argument_write(step->arrived)};
    const loch_launch_options how = {
        .size = sizeof how,
        .grid = {(uint32_t)step->model->shape.heads, (uint32_t)step->rows, (uint32_t)step->parts},
        .block = {ATTEND_THREADS},
        .flags = flags_of(step)};
    return loch_kernel_launch(step->attend, arguments, sizeof arguments / sizeof *arguments, step->stream, &how);
}

static loch_status embed(const decoder_step *step)
{
    const loch_argument arguments[] = {
        loch_argument_bytes(&step->shape, sizeof step->shape), loch_argument_bytes(&step->slots, sizeof step->slots),
        loch_argument_read(step->model->weights[EMBEDDING].tensor), loch_argument_write(step->x)};
    const loch_launch_options how = {.size = sizeof how, .grid = {(uint32_t)step->rows}, .block = {256}};
    return loch_kernel_launch(step->embed, arguments, sizeof arguments / sizeof *arguments, step->stream, &how);
}

static loch_status advance(const decoder_step *step)
{
    const loch_argument arguments[] = {loch_argument_bytes(&step->slots, sizeof step->slots)};
    const loch_launch_options how = {.size = sizeof how, .block = {32}, .flags = flags_of(step)};
    return loch_kernel_launch(step->advance, arguments, 1, step->stream, &how);
}

/* --- a step --- */

/* The kernels of a layer, in their order. */
enum { STEP_QKV, STEP_ATTEND, STEP_OUTPUT, STEP_GATE_UP, STEP_DOWN, STEP_KINDS };

/* Queues a layer, or one kernel of it (`only`, STEP_KINDS for all). */
static loch_status queue_layer(const decoder_step *step, size_t layer, int only)
{
    const decoder_shape *shape = &step->model->shape;
    const decoder_weight *weights = model_layer(step->model, layer, 0);
    const size_t width = shape->width;
    const int is_last = layer + 1 == shape->layers;
    const decoder_weight *later = is_last ? NULL : model_layer(step->model, layer + 1, 0);
    const step_product qkv = {.kind = PRODUCT_QKV,
                              .columns = width,
                              .tasks = width / 2 + shape_kv_width(shape),
                              .layer = layer,
                              .input = step->x,
                              .norm = &weights[ATTENTION_NORM],
                              .first = &weights[QUERY],
                              .second = &weights[KEY],
                              .third = &weights[VALUE],
                              .output = step->query,
                              .ahead = fetch(step, &weights[OUTPUT], NULL, NULL)};
    const step_product output = {.kind = PRODUCT_ADD,
                                 .columns = width,
                                 .tasks = width / 2,
                                 .input = step->mixed,
                                 .first = &weights[OUTPUT],
                                 .output = step->x};
    const step_product gate_up = {.kind = PRODUCT_SWIGLU,
                                  .columns = width,
                                  .tasks = shape->mlp,
                                  .input = step->x,
                                  .norm = &weights[MLP_NORM],
                                  .first = &weights[GATE],
                                  .second = &weights[UP],
                                  .output = step->inner,
                                  .ahead = fetch(step, &weights[DOWN], NULL, NULL)};
    const step_product down = {.kind = PRODUCT_ADD,
                               .columns = shape->mlp,
                               .tasks = width / 2,
                               .input = step->inner,
                               .first = &weights[DOWN],
                               .output = step->x,
                               .ahead = is_last ? fetch(step, model_head(step->model), NULL, NULL)
                                                : fetch(step, &later[QUERY], &later[KEY], &later[VALUE])};
    const step_product *const products[STEP_KINDS] = {
        [STEP_QKV] = &qkv, [STEP_OUTPUT] = &output, [STEP_GATE_UP] = &gate_up, [STEP_DOWN] = &down};
    for (int kind = 0; kind < STEP_KINDS; kind++) {
        if (only != STEP_KINDS && only != kind) continue;
        LOCH_RETURN(kind == STEP_ATTEND ? attend(step, layer) : product(step, products[kind]));
    }
    return LOCH_OK;
}

/* Queues the logits and the choice of tokens. */
static loch_status queue_end(const decoder_step *step)
{
    const decoder_shape *shape = &step->model->shape;
    const decoder_weight *first = model_layer(step->model, 0, 0); /* of the next step */
    const step_product logits = {.kind = PRODUCT_LOGITS,
                                 .columns = shape->width,
                                 .tasks = shape->vocabulary / 2,
                                 .input = step->x,
                                 .norm = model_final_norm(step->model),
                                 .first = model_head(step->model),
                                 .output = step->logits,
                                 .ahead = fetch(step, &first[QUERY], &first[KEY], &first[VALUE])};
    LOCH_RETURN(product(step, &logits));
    return advance(step);
}

static loch_status queue_step(void *user)
{
    const decoder_step *step = user;
    const decoder_shape *shape = &step->model->shape;
    LOCH_RETURN(embed(step));
    for (size_t layer = 0; layer < shape->layers; layer++)
        LOCH_RETURN(queue_layer(step, layer, STEP_KINDS));
    return queue_end(step);
}

loch_status step_run(decoder_step *step)
{
    return step->graph.executable ? graph_launch(&step->graph, step->stream) : queue_step(step);
}

/* --- profile --- */

/* Runs one kernel of all layers several times and returns the nanoseconds of one. */
static loch_status time_kind(const decoder_step *step, int kind, loch_event *start, loch_event *end, double *out)
{
    enum { ROUNDS = 5 };
    const size_t layers = step->model->shape.layers;
    uint64_t ns;
    for (size_t i = 0; i < layers * (ROUNDS + 1); i++) {
        if (i == layers) LOCH_RETURN(loch_event_record(start, step->stream)); /* the first round warms up */
        LOCH_RETURN(queue_layer(step, i % layers, kind));
    }
    LOCH_RETURN(loch_event_record(end, step->stream));
    LOCH_RETURN(loch_stream_sync(step->stream));
    LOCH_RETURN(loch_event_elapsed(start, end, &ns));
    *out = (double)ns / (double)(layers * ROUNDS);
    return LOCH_OK;
}

static loch_status profile(const decoder_step *step, loch_event *start, loch_event *end)
{
    static const char *const names[] = {"queries, keys, values", "attention", "output", "gate and up", "down"};
    static const int weights[][3] = {
        {QUERY, KEY, VALUE}, {-1, -1, -1}, {OUTPUT, -1, -1}, {GATE, UP, -1}, {DOWN, -1, -1}};
    for (int kind = 0; kind < STEP_KINDS; kind++) {
        double ns;
        size_t bytes = 0;
        for (int i = 0; i < 3; i++)
            if (weights[kind][i] >= 0)
                bytes += loch_tensor_get_bytes(model_layer(step->model, 0, (size_t)weights[kind][i])->tensor);
        LOCH_RETURN(time_kind(step, kind, start, end, &ns));
        printf("    %-22s %8.2f us a layer, %6.0f GB/s\n", names[kind], ns / 1e3, (double)bytes / ns);
    }
    return LOCH_OK;
}

loch_status step_profile(const decoder_step *step)
{
    loch_device *device = loch_stream_get_device(step->stream);
    loch_event *start, *end = NULL;
    LOCH_RETURN(loch_event_create(device, LOCH_EVENT_TIMED, &start));
    loch_status status = loch_event_create(device, LOCH_EVENT_TIMED, &end);
    if (status == LOCH_OK) status = profile(step, start, end);
    loch_event_destroy(start);
    loch_event_destroy(end);
    return status;
}

/* --- opening --- */

static loch_status find_kernels(decoder_step *step, loch_device *device)
{
    const loch_module_options options = {.size = sizeof options, .name = "the decoder's kernels"};
    const char *type = step->model->dtype == LOCH_BF16 ? "bf16" : "f32";
    char name[32];
    LOCH_RETURN(loch_module_create(device, decoder_kernels_ptx, decoder_kernels_ptx_bytes, &options, &step->module));
    snprintf(name, sizeof name, "product_%s_%zu", type, step->rows);
    LOCH_RETURN(loch_module_find(step->module, name, &step->product));
    snprintf(name, sizeof name, "attend_%s", type);
    LOCH_RETURN(loch_module_find(step->module, name, &step->attend));
    snprintf(name, sizeof name, "embed_%s", type);
    LOCH_RETURN(loch_module_find(step->module, name, &step->embed));
    return loch_module_find(step->module, "advance", &step->advance);
}

static loch_status create(const decoder_step *step, loch_context *context, loch_dtype dtype, size_t elements,
                          const char *name, loch_tensor **out)
{
    LOCH_RETURN(
        loch_context_create_tensor(context, dtype, LOCH_SHAPE((int64_t)elements), name, step->model->activations, out));
    return loch_tensor_fill(*out, loch_scalar_of(0), step->stream);
}

static loch_status create_tensors(decoder_step *step, loch_context *context)
{
    const decoder_shape *shape = &step->model->shape;
    const size_t rows = step->rows, parts = step->parts;
    const size_t pages_each = (shape->context + PAGE_POSITIONS - 1) / PAGE_POSITIONS;
#define STEP_CREATE(name, type, elements) LOCH_RETURN(create(step, context, type, elements, #name, &step->name));
    STEP_TENSORS(STEP_CREATE)
#undef STEP_CREATE
    return loch_tensor_fill(step->positions, loch_scalar_of(-1), step->stream);
}

/* Writes cosines and sines of all positions, with the formula of kernel_rotary. */
static loch_status fill_rotary(const decoder_step *step)
{
    const size_t head = step->model->shape.head, half = head / 2, context = step->model->shape.context;
    float *table = malloc(context * head * sizeof *table), *to = table;
    if (!table) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for a table of angles");
    for (size_t position = 0; position < context; position++)
        for (size_t i = 0; i < half; i++) {
            const double angle = (double)position * pow(10000.0, -2.0 * (double)i / (double)head);
            *to++ = (float)cos(angle);
            *to++ = (float)sin(angle);
        }
    const loch_status status = loch_tensor_write(step->rotary, table, context * head * sizeof *table, step->stream);
    free(table);
    return status;
}

static unsigned long long address_of(const loch_tensor *tensor)
{
    void *address = NULL;
    const loch_status status = loch_tensor_get_address(tensor, &address);
    return status == LOCH_OK ? (unsigned long long)(uintptr_t)address : 0;
}

/* Fills in what the kernels get by value. */
static void describe(decoder_step *step, const cache_family *caches)
{
    const decoder_shape *shape = &step->model->shape;
    const int is_paged = caches->kind == CACHE_PAGED;
    step->shape = (device_shape){.width = (int)shape->width,
                                 .heads = (int)shape->heads,
                                 .kv_heads = (int)shape->kv_heads,
                                 .head = (int)shape->head,
                                 .mlp = (int)shape->mlp,
                                 .layers = (int)shape->layers,
                                 .vocabulary = (int)shape->vocabulary};
    step->slots = (device_slots){.positions = address_of(step->positions),
                                 .prompts = address_of(step->prompts),
                                 .texts = address_of(step->texts),
                                 .caches = is_paged ? 0 : address_of(step->caches),
                                 .pages = is_paged ? address_of(step->pages) : 0,
                                 .region = (unsigned long long)(uintptr_t)caches->pages.region,
                                 .numbers = address_of(step->numbers),
                                 .best = address_of(step->best),
                                 .seed = step->options->seed,
                                 .temperature = step->options->temperature,
                                 .rotary = address_of(step->rotary),
                                 .slots = (int)step->rows,
                                 .context = (int)shape->context,
                                 .page = PAGE_POSITIONS,
                                 .pages_each = (int)((shape->context + PAGE_POSITIONS - 1) / PAGE_POSITIONS)};
}

loch_status step_open(decoder_step *step, const decoder_model *model, loch_context *context,
                      const serve_options *options, const cache_family *caches, size_t longest)
{
    const size_t parts = (longest + ATTEND_POSITIONS - 1) / ATTEND_POSITIONS;
    *step = (decoder_step){.model = model,
                           .options = options,
                           .rows = options->batch == 1   ? 1
                                   : options->batch <= 4 ? 4
                                                         : 8,
                           .parts = parts > PARTS_MAX ? PARTS_MAX : parts};
    LOCH_RETURN(loch_context_require_stream(context, &step->stream));
    LOCH_RETURN(find_kernels(step, loch_context_get_device(context)));
    LOCH_RETURN(create_tensors(step, context));
    LOCH_RETURN(fill_rotary(step));
    describe(step, caches);
    LOCH_RETURN(queue_step(step)); /* no slot is busy: the driver loads the kernels now, and not in the capture */
    LOCH_RETURN(loch_stream_sync(step->stream));
    return options->graph ? graph_capture(&step->graph, step->stream, queue_step, step) : LOCH_OK;
}

void step_close(decoder_step *step)
{
    if (step->stream && loch_stream_sync(step->stream) != LOCH_OK)
        fprintf(stderr, "decoder: %s\n", loch_error_get()->sentence);
    graph_destroy(&step->graph);
    loch_module_destroy(step->module);
#define STEP_RELEASE(name, type, elements) loch_tensor_clear(&step->name);
    STEP_TENSORS(STEP_RELEASE)
#undef STEP_RELEASE
}
