/* SPDX-License-Identifier: MIT */
/* A decoder that serves several requests at once: an example of an engine on Loch (docs/decoder.md). Exits with 0 on
 * success, 1 on a failure or a leak, 2 for wrong arguments. */
#include "serve.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB 1024
#define MIB ((size_t)1 << 20)

typedef struct main_options {
    decoder_source source;
    const char *save;
    uint64_t requests, tokens, threads, batch, ahead, warps;
    const char *temperature_text;
    const char *device, *shape_name, *dtype_name, *cache_name, *graph_name, *early_name, *profile_name;
    const char *logits;
    const char *trace;
    const char *texts;
    const decoder_shape *shape;
    loch_dtype dtype;
    serve_options serve;
} main_options;

static const char help[] =
    "usage: decoder [OPTION...]\n"
    "Serves requests with a transformer decoder on the CPU or a CUDA device; its weights are random, and so is what "
    "it\n"
    "says.\n"
    "  --seed N             makes the weights from this number (default 1)\n"
    "  --weights DIR        loads them from DIR/*.npy instead\n"
    "  --save-weights DIR   writes them to DIR/*.npy\n"
    "  --requests N         how many are served (default 8)\n"
    "  --tokens N           that each of them gets (default 32)\n"
    "  --threads N          that serve on the CPU, and make weights (default 4)\n"
    "  --device NAME        cpu, or cuda:N (default cpu)\n"
    "  --shape NAME         small, or 1.1b with the sizes of a Llama of 1.1 billion parameters (default small)\n"
    "  --dtype NAME         of weights and caches: f32, or bf16 on a CUDA device (default f32)\n"
    "  --cache NAME         grown: a block a request that grows in place; paged: pages of a region (default grown)\n"
    "  --batch N            requests that take a step together on a CUDA device, 1 to 8 (default 4)\n"
    "  --graph on|off       whether a step on a CUDA device is a captured graph (default on)\n"
    "  --early on|off       whether its kernels begin before the one in front ends (default on)\n"
    "  --ahead N            MiB of weights of later kernels that each of them fetches into the cache (default 0)\n"
    "  --warps N            of a block in its matrix products (default 8)\n"
    "  --profile on|off     whether the time of each of its kernels is printed (default off)\n"
    "  --temperature X      samples tokens, from the seed; 0 takes the largest logit (default 0)\n"
    "  --texts FILE.npy     writes the tokens of all requests, one row each\n"
    "  --logits FILE.npy    writes the logits of all positions of all requests\n"
    "  --trace FILE.json    writes the timeline for chrome://tracing and Perfetto\n"
    "  --help               this\n";

/* --- options --- */

static int wrong(const char *name, const char *why)
{
    fprintf(stderr, "decoder: %.100s %s; see --help\n", name, why);
    return 2;
}

/* An option and the place of its value: text, or a number within limits. */
typedef struct main_option {
    const char *name;
    const char **text;
    uint64_t *number;
    uint64_t least, most;
} main_option;

static int read_value(const main_option *option, const char *value)
{
    char why[80];
    if (option->text) {
        *option->text = value;
        return *value ? 0 : wrong(option->name, "takes a name");
    }
    const int is_digits = *value && strspn(value, "0123456789") == strlen(value) && strlen(value) <= 19;
    *option->number = strtoull(value, NULL, 10);
    if (is_digits && *option->number >= option->least && *option->number <= option->most) return 0;
    snprintf(why, sizeof why, "takes a number from %llu to %llu", (unsigned long long)option->least,
             (unsigned long long)option->most);
    return wrong(option->name, why);
}

/* Finds `name` in a list that ends with NULL and sets `out` to its number. */
static int read_choice(const char *option, const char *name, const char *const *choices, int *out)
{
    for (*out = 0; choices[*out]; (*out)++)
        if (!strcmp(name, choices[*out])) return 0;
    return wrong(option, "has no such value");
}

/* Reads the options that are names, and those whose limits depend on them. */
static int read_names(main_options *options)
{
    static const char *const dtypes[] = {"f32", "bf16", NULL}, *const caches[] = {"grown", "paged", NULL};
    static const char *const switches[] = {"off", "on", NULL};
    int dtype, cache;
    serve_options *serve = &options->serve;
    options->shape = shape_find(options->shape_name);
    if (!options->shape) return wrong("--shape", "has no such value");
    if (read_choice("--dtype", options->dtype_name, dtypes, &dtype) ||
        read_choice("--cache", options->cache_name, caches, &cache) ||
        read_choice("--graph", options->graph_name, switches, &serve->graph) ||
        read_choice("--early", options->early_name, switches, &serve->early) ||
        read_choice("--profile", options->profile_name, switches, &serve->profile))
        return 2;
    options->dtype = dtype ? LOCH_BF16 : LOCH_F32;
    serve->cache = cache ? CACHE_PAGED : CACHE_GROWN;
    serve->batch = options->batch;
    serve->warps = options->warps;
    serve->ahead = options->ahead;
    serve->seed = options->source.seed;
    char *end;
    serve->temperature = strtof(options->temperature_text, &end);
    if (*end || !(serve->temperature >= 0 && serve->temperature <= 100))
        return wrong("--temperature", "takes a number from 0 to 100");
    if (options->tokens > options->shape->context - request_longest())
        return wrong("--tokens", "is more than the shape has positions for");
    return 0;
}

/* Returns 0, or the exit code; -1 for --help. */
static int read_options(main_options *options, int count, char **arguments)
{
    const main_option known[] = {
        {"--seed", .number = &options->source.seed, .most = INT64_MAX},
        {"--weights", .text = &options->source.folder},
        {"--save-weights", .text = &options->save},
        {"--requests", .number = &options->requests, .least = 1, .most = 1000},
        {"--tokens", .number = &options->tokens, .least = 1, .most = 1000000},
        {"--threads", .number = &options->threads, .least = 1, .most = 64},
        {"--device", .text = &options->device},
        {"--shape", .text = &options->shape_name},
        {"--dtype", .text = &options->dtype_name},
        {"--cache", .text = &options->cache_name},
        {"--batch", .number = &options->batch, .least = 1, .most = 8},
        {"--graph", .text = &options->graph_name},
        {"--early", .text = &options->early_name},
        {"--profile", .text = &options->profile_name},
        {"--ahead", .number = &options->ahead, .most = 64},
        {"--warps", .number = &options->warps, .least = 1, .most = 16},
        {"--temperature", .text = &options->temperature_text},
        {"--texts", .text = &options->texts},
        {"--logits", .text = &options->logits},
        {"--trace", .text = &options->trace},
    };
    const main_option *const end = known + sizeof known / sizeof *known;
    int has_seed = 0;
    for (int i = 1; i < count; i += 2) {
        const main_option *option = known;
        if (!strcmp(arguments[i], "--help")) return -1;
        while (option < end && strcmp(arguments[i], option->name) != 0)
            option++;
        if (option == end) return wrong(arguments[i], "is no option");
        if (i + 1 == count) return wrong(option->name, "needs a value");
        const int code = read_value(option, arguments[i + 1]);
        if (code) return code;
        has_seed = has_seed || option->number == &options->source.seed;
    }
    if (has_seed && options->source.folder) return wrong("--seed", "and --weights do not go together");
    return read_names(options);
}

/* --- printing --- */

static int is_printable(int32_t token)
{
    return token >= ' ' && token < 127;
}

static void print_request(const decoder_request *request)
{
    printf("request %2zu: \"", request->number);
    for (size_t i = 0; i < request->length; i++) {
        if (i == request->prompt) printf("\" +");
        putchar(is_printable(request->text[i]) ? request->text[i] : '.');
    }
    printf("  %zu positions, cache %.1f KiB\n", request->length - 1, (double)request->cache_bytes / KIB);
}

/* Prints the memory of the engine and of the caches, whose pools have ended. */
static void print_memory(loch_engine *engine, size_t caches_peak_bytes)
{
    size_t length = 0;
    LOCH_CHECK(loch_engine_print(engine, NULL, 0, &length));
    char *text = malloc(length + 1);
    if (text && loch_engine_print(engine, text, length + 1, NULL) == LOCH_OK) printf("\n%s", text);
    printf("    %-24speak %.1f KiB\n", "caches of all requests", (double)caches_peak_bytes / KIB);
    free(text);
}

static void print_timeline(loch_timeline *timeline)
{
    size_t length = 0;
    LOCH_CHECK(loch_timeline_print(timeline, LOCH_TIMELINE_TREE, 0, NULL, 0, &length));
    char *text = malloc(length + 1);
    if (text && loch_timeline_print(timeline, LOCH_TIMELINE_TREE, 0, text, length + 1, NULL) == LOCH_OK)
        printf("\n%s", text);
    free(text);
}

/* --- serving --- */

static loch_status make_requests(const main_options *options, decoder_request *requests, loch_tensor **logits)
{
    const size_t vocabulary = options->shape->vocabulary;
    size_t rows = 0;
    void *address;
    for (size_t i = 0; i < options->requests; i++) {
        LOCH_RETURN(request_init(&requests[i], i, options->tokens));
        rows += requests[i].wanted - 1;
    }
    if (!options->logits) return LOCH_OK;
    LOCH_RETURN(loch_tensor_create(LOCH_F32, LOCH_SHAPE((int64_t)rows, (int64_t)vocabulary), NULL, logits));
    LOCH_RETURN(loch_tensor_get_address(*logits, &address));
    float *at = address;
    for (size_t i = 0; i < options->requests; at += (requests[i++].wanted - 1) * vocabulary)
        requests[i].logits = at;
    return LOCH_OK;
}

/* Writes a row of tokens for each request, filled up with -1. */
static loch_status save_texts(const decoder_request *requests, const main_options *options)
{
    LOCH_AUTO(tensor) texts = NULL;
    const size_t columns = request_longest() + options->tokens;
    void *address;
    LOCH_RETURN(loch_tensor_create(LOCH_I32, LOCH_SHAPE((int64_t)options->requests, (int64_t)columns), NULL, &texts));
    LOCH_RETURN(loch_tensor_get_address(texts, &address));
    int32_t *to = address;
    for (size_t i = 0; i < options->requests; i++)
        for (size_t j = 0; j < columns; j++)
            *to++ = j < requests[i].length ? requests[i].text[j] : -1;
    return loch_npy_save(texts, options->texts, NULL);
}

/* Serves on the host if it reaches the memory of the device, otherwise by kernels of the device. */
static loch_status serve_all(const decoder_model *model, loch_context *context, const main_options *options,
                             decoder_request *requests, serve_result *result)
{
    LOCH_AUTO(tensor) logits = NULL;
    LOCH_RETURN(make_requests(options, requests, &logits));
    const int is_on_host = loch_tensor_is_on_host(model->weights[EMBEDDING].tensor);
    if (is_on_host && model->dtype != LOCH_F32)
        return loch_error_set(LOCH_E_UNSUPPORTED, NULL, 0, "the host computes in f32: bf16 is for CUDA devices");
    if (is_on_host)
        LOCH_RETURN(serve(model, LOCH_SEAT(0), requests, options->requests, &options->serve, result));
    else
        LOCH_RETURN(batch_serve(model, context, requests, options->requests, &options->serve, result));
    for (size_t i = 0; i < options->requests; i++)
        print_request(&requests[i]);
    if (logits) LOCH_RETURN(loch_npy_save(logits, options->logits, NULL));
    return options->texts ? save_texts(requests, options) : LOCH_OK;
}

/* Prints the speed of steps on a device. The bound by bandwidth is read_bytes / (bytes a second that a copy moves). */
static void print_speed(const serve_result *result)
{
    if (result->step_seconds <= 0) return;
    printf("\n%.4f ms a step, %.1f tokens/s; a step reads %.1f MiB: %.0f GB/s\n", result->step_seconds * 1e3,
           result->slots_busy / result->step_seconds, (double)result->read_bytes / (double)MIB,
           (double)result->read_bytes / result->step_seconds / 1e9);
    printf("the pool holds %.1f MiB in blocks and reserves %.1f MiB: %.4f\n", (double)result->held_bytes / (double)MIB,
           (double)result->reserved_bytes / (double)MIB, (double)result->reserved_bytes / (double)result->held_bytes);
}

static loch_status run(loch_engine *engine, loch_context *context, decoder_model *model, const main_options *options)
{
    serve_result result = {0};
    LOCH_RETURN(model_load(model, context, &options->source));
    printf("%zu weights, %zu KiB frozen\n\n", model->weights_count, model->frozen_bytes / KIB);
    if (options->save) LOCH_RETURN(model_save(model, options->save));
    decoder_request *requests = calloc(options->requests, sizeof *requests);
    if (!requests) return loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for so many requests");
    const loch_status status = serve_all(model, context, options, requests, &result);
    for (size_t i = 0; i < options->requests; i++)
        request_end(&requests[i]);
    free(requests);
    if (status != LOCH_OK) return status;
    print_speed(&result);
    /* No task runs: memory in thread caches goes back to the pool, and unused memory of the pool to the device. */
    LOCH_RETURN(loch_allocator_trim(loch_engine_get_allocator(engine, LOCH_SEAT(0)), 0, NULL));
    print_memory(engine, result.caches_peak_bytes);
    print_timeline(model->timeline);
    if (options->trace) LOCH_RETURN(loch_timeline_save(model->timeline, options->trace, LOCH_TIMELINE_TRACE, 0));
    return LOCH_OK;
}

/* Freezes the weights: they are movable until then, and packed together afterwards. */
static loch_status run_in_context(loch_engine *engine, const main_options *options)
{
    const loch_context_options how = {.size = sizeof how, .name = "main", .flags = LOCH_ALLOC_MOVABLE};
    loch_context *context;
    decoder_model model = {.shape = *options->shape, .dtype = options->dtype};
    LOCH_RETURN(loch_context_open(engine, &how, &context));
    const loch_status status = run(engine, context, &model, options);
    const loch_error why = *loch_error_get();
    model_release(&model);
    const loch_status ended = loch_context_close(context);
    if (status == LOCH_OK) return ended;
    return loch_error_set(status, NULL, 0, "%s", why.sentence);
}

/* --- the engine --- */

/* The most memory that the seat may have: twice the weights while they are frozen, and caches and activations. */
static size_t limit_of(const decoder_shape *shape, loch_dtype dtype)
{
    const size_t width = shape->width;
    const size_t layer = width * (2 * width + 2 * shape_kv_width(shape) + 3 * shape->mlp);
    const size_t elements = shape->layers * layer + 2 * shape->vocabulary * width;
    const size_t caches = 64 * shape->context * shape_cache_step(shape);
    return (2 * elements + caches) * loch_dtype_bytes(dtype) + 256 * MIB;
}

static loch_status open_engine(const main_options *options, loch_engine **out)
{
    const loch_engine_device device = {.size = sizeof device,
                                       .name = options->device,
                                       .limit_bytes = limit_of(options->shape, options->dtype),
                                       .workers = options->threads};
    const loch_timeline_options timeline = {.size = sizeof timeline, .level = 1};
    const loch_engine_options how = {
        .size = sizeof how, .name = "decoder", .devices = &device, .devices_count = 1, .timeline = &timeline};
    return loch_engine_open(&how, out);
}

static loch_status print_leak(const loch_block *block, void *user)
{
    (void)user;
    fprintf(stderr, "decoder: left behind: %zu bytes of \"%s\"\n", block->requested_bytes, loch_tag_name(block->tag));
    return LOCH_OK;
}

static loch_status shut_down(loch_engine *engine)
{
    loch_engine_leaks leaks = {.size = sizeof leaks};
    LOCH_RETURN(loch_engine_close(engine, LOCH_WORKERS_DRAIN, print_leak, NULL, &leaks));
    if (leaks.blocks)
        return loch_error_set(LOCH_E_BUSY, NULL, 0, "%zu blocks with %zu bytes leaked", leaks.blocks, leaks.bytes);
    return LOCH_OK;
}

static int fail(void)
{
    fprintf(stderr, "decoder: %s\n", loch_error_get()->sentence);
    return 1;
}

/* Output counts as printed only when it was written without an error. */
static int finish(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    fputs("decoder: the output cannot be written\n", stderr);
    return 1;
}

int main(int count, char **arguments)
{
    main_options options = {.source = {.seed = 1},
                            .requests = 8,
                            .tokens = 32,
                            .threads = 4,
                            .batch = 4,
                            .warps = 8,
                            .temperature_text = "0",
                            .device = "cpu",
                            .shape_name = "small",
                            .dtype_name = "f32",
                            .cache_name = "grown",
                            .graph_name = "on",
                            .early_name = "on",
                            .profile_name = "off"};
    const int code = read_options(&options, count, arguments);
    if (code == -1) fputs(help, stdout);
    if (code) return code == -1 ? finish(0) : code;
    loch_engine *engine;
    if (open_engine(&options, &engine) != LOCH_OK) return fail();
    const int failed = run_in_context(engine, &options) == LOCH_OK ? 0 : fail();
    if (shut_down(engine) != LOCH_OK) return fail();
    if (!failed) puts("\nno leak");
    return finish(failed);
}
