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
    uint64_t requests, tokens, threads;
    const char *device;
    const char *logits;
    const char *trace;
} main_options;

static const char help[] =
    "usage: decoder [OPTION...]\n"
    "Serves requests with a small transformer decoder on the CPU; its weights are random, and so is what it says.\n"
    "  --seed N             makes the weights from this number (default 1)\n"
    "  --weights DIR        loads them from DIR/*.npy instead\n"
    "  --save-weights DIR   writes them to DIR/*.npy\n"
    "  --requests N         how many are served (default 8)\n"
    "  --tokens N           that each of them gets (default 32)\n"
    "  --threads N          that serve (default 4)\n"
    "  --device NAME        whose memory is used; the host has to reach it (default cpu)\n"
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

/* Returns 0, or the exit code; -1 for --help. */
static int read_options(main_options *options, int count, char **arguments)
{
    const main_option known[] = {
        {"--seed", .number = &options->source.seed, .most = INT64_MAX},
        {"--weights", .text = &options->source.folder},
        {"--save-weights", .text = &options->save},
        {"--requests", .number = &options->requests, .least = 1, .most = 1000},
        {"--tokens", .number = &options->tokens, .least = 1, .most = CONTEXT - request_longest()},
        {"--threads", .number = &options->threads, .least = 1, .most = 64},
        {"--device", .text = &options->device},
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
    return 0;
}

/* --- printing --- */

static int is_printable(uint8_t byte)
{
    return byte >= ' ' && byte < 127;
}

static void print_request(const decoder_request *request)
{
    printf("request %2zu: \"%.*s\" +", request->number, (int)request->prompt, (const char *)request->text);
    for (size_t i = request->prompt; i < request->length; i++)
        putchar(is_printable(request->text[i]) ? request->text[i] : '.');
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

static loch_status make_requests(const main_options *options, decoder_request **requests, loch_tensor **logits)
{
    size_t rows = 0;
    void *address;
    *requests = calloc(options->requests, sizeof **requests);
    if (!*requests) {
        (void)loch_error_set(LOCH_E_HOST_MEMORY, NULL, 0, "no memory for so many requests");
        return LOCH_E_HOST_MEMORY;
    }
    for (size_t i = 0; i < options->requests; i++) {
        request_init(&(*requests)[i], i, options->tokens);
        rows += (*requests)[i].wanted - 1;
    }
    if (!options->logits) return LOCH_OK;
    LOCH_RETURN(loch_tensor_create(LOCH_F32, LOCH_SHAPE((int64_t)rows, VOCABULARY), NULL, logits));
    LOCH_RETURN(loch_tensor_get_address(*logits, &address));
    float *at = address;
    for (size_t i = 0; i < options->requests; at += ((*requests)[i++].wanted - 1) * VOCABULARY)
        (*requests)[i].logits = at;
    return LOCH_OK;
}

static loch_status serve_all(const decoder_model *model, const main_options *options, decoder_request **requests,
                             size_t *caches_peak_bytes)
{
    LOCH_AUTO(tensor) logits = NULL;
    LOCH_RETURN(make_requests(options, requests, &logits));
    LOCH_RETURN(serve(model, LOCH_SEAT(0), *requests, options->requests, caches_peak_bytes));
    for (size_t i = 0; i < options->requests; i++)
        print_request(&(*requests)[i]);
    if (logits) LOCH_RETURN(loch_npy_save(logits, options->logits, NULL));
    return LOCH_OK;
}

static loch_status run(loch_engine *engine, loch_context *context, decoder_model *model, const main_options *options)
{
    decoder_request *requests = NULL;
    size_t caches_peak_bytes = 0;
    LOCH_RETURN(model_load(model, context, &options->source));
    printf("%d weights, %zu KiB frozen\n\n", (int)WEIGHTS, model->frozen_bytes / KIB);
    if (options->save) LOCH_RETURN(model_save(model, options->save));
    const loch_status status = serve_all(model, options, &requests, &caches_peak_bytes);
    free(requests);
    if (status != LOCH_OK) return status;
    /* No task runs: memory in thread caches goes back to the pool, and unused memory of the pool to the device. */
    LOCH_RETURN(loch_allocator_trim(loch_engine_get_allocator(engine, LOCH_SEAT(0)), 0, NULL));
    print_memory(engine, caches_peak_bytes);
    print_timeline(model->timeline);
    if (options->trace) LOCH_RETURN(loch_timeline_save(model->timeline, options->trace, LOCH_TIMELINE_TRACE, 0));
    return LOCH_OK;
}

/* Freezes the weights: they are movable until then, and packed together afterwards. */
static loch_status run_in_context(loch_engine *engine, const main_options *options)
{
    const loch_context_options how = {.size = sizeof how, .name = "main", .flags = LOCH_ALLOC_MOVABLE};
    loch_context *context;
    decoder_model model = {.engine = NULL};
    LOCH_RETURN(loch_context_open(engine, &how, &context));
    const loch_status status = run(engine, context, &model, options);
    const loch_error why = *loch_error_get();
    model_release(&model);
    const loch_status ended = loch_context_close(context);
    if (status == LOCH_OK) return ended;
    return loch_error_set(status, NULL, 0, "%s", why.sentence);
}

/* --- the engine --- */

static loch_status open_engine(const main_options *options, loch_engine **out)
{
    const loch_engine_device device = {
        .size = sizeof device, .name = options->device, .limit_bytes = 256 * MIB, .workers = options->threads};
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
    main_options options = {.source = {.seed = 1}, .requests = 8, .tokens = 32, .threads = 4, .device = "cpu"};
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
