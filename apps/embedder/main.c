/* SPDX-License-Identifier: MIT */
/* Ranks the sentences of a text by meaning with a real model: an example of an engine on Loch (docs/embedder.md). Exits
 * with 0 on success, 1 on a failure, 2 for wrong arguments. */
#include "embed.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB ((double)(1 << 20))

enum { LINE = 100 }; /* bytes of a sentence that are printed */

typedef struct main_options {
    const char *folder; /* of the model; NULL: the cache's */
    const char *queries[8];
    size_t queries_count;
    const char *device, *type, *blas, *vectors;
    uint64_t threads, top, tokens;
    char **files;
    int files_count;
} main_options;

static const char help[] =
    "usage: embedder [OPTION...] [FILE...]\n"
    "Ranks the sentences of text files by their meaning with all-MiniLM-L6-v2; without files, those of a short text.\n"
    "  --query TEXT         what the sentences are compared with; up to 8 of them\n"
    "  --top N              sentences that are printed (default 5)\n"
    "  --vectors FILE.npy   writes the vectors of all lines of the files instead\n"
    "  --model DIR          folder of model.safetensors and vocab.txt (default: the cache's, see docs/embedder.md)\n"
    "  --tokens N           the most of a sentence; the rest is cut off (default 256)\n"
    "  --device NAME        cpu or cuda:N (default cpu)\n"
    "  --type TYPE          f32, or f16 on CUDA (default f32)\n"
    "  --threads N          on the CPU (default: as many as there are CPUs)\n"
    "  --blas FILE          library with cblas_sgemm; \"none\" for plain products (default libopenblas.so.0)\n"
    "  --help               this\n";

static const char *const sentences[] = {
    "The river rose overnight and carried the wooden bridge away.",
    "A cup of strong coffee helps me through the first hours of work.",
    "The orchestra rehearsed the symphony until late in the evening.",
    "Her bicycle had a flat tyre, so she took the tram to the station.",
    "Scientists measured the light of a star that exploded long ago.",
    "The bank refused the loan because the papers were incomplete.",
    "Fresh bread smells best when it has just left the oven.",
    "Our goalkeeper stopped two penalties and saved the match.",
    "A new vaccine protects children against the disease.",
    "The program crashed because it used more memory than the machine has.",
};

static const char *const queries[] = {"flood damage", "Which sentence is about astronomy?", "out of memory"};

/* --- options --- */

static int wrong(const char *name, const char *why)
{
    fprintf(stderr, "embedder: %.100s %s; see --help\n", name, why);
    return 2;
}

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
    const int is_digits = *value && strspn(value, "0123456789") == strlen(value) && strlen(value) <= 9;
    *option->number = strtoull(value, NULL, 10);
    if (is_digits && *option->number >= option->least && *option->number <= option->most) return 0;
    snprintf(why, sizeof why, "takes a number from %llu to %llu", (unsigned long long)option->least,
             (unsigned long long)option->most);
    return wrong(option->name, why);
}

/* Returns 0, or the exit code; -1 for --help. */
static int read_options(main_options *options, int count, char **arguments)
{
    const char *query = NULL;
    const main_option known[] = {
        {"--query", .text = &query},
        {"--top", .number = &options->top, .least = 1, .most = 1000},
        {"--vectors", .text = &options->vectors},
        {"--model", .text = &options->folder},
        {"--tokens", .number = &options->tokens, .least = 2, .most = POSITIONS},
        {"--device", .text = &options->device},
        {"--type", .text = &options->type},
        {"--threads", .number = &options->threads, .least = 1, .most = 256},
        {"--blas", .text = &options->blas},
    };
    const main_option *const end = known + sizeof known / sizeof *known;
    int i = 1;
    for (; i < count && strncmp(arguments[i], "--", 2) == 0; i += 2) {
        const main_option *option = known;
        if (!strcmp(arguments[i], "--help")) return -1;
        while (option < end && strcmp(arguments[i], option->name) != 0)
            option++;
        if (option == end) return wrong(arguments[i], "is no option");
        if (i + 1 == count) return wrong(option->name, "needs a value");
        const int code = read_value(option, arguments[i + 1]);
        if (code) return code;
        if (option->text != &query) continue;
        if (options->queries_count == sizeof options->queries / sizeof *options->queries)
            return wrong(option->name, "is there more than 8 times");
        options->queries[options->queries_count++] = query;
    }
    options->files = arguments + i;
    options->files_count = count - i;
    if (strcmp(options->type, "f32") != 0 && strcmp(options->type, "f16") != 0) return wrong("--type", "is f32 or f16");
    if (options->vectors && !options->files_count) return wrong("--vectors", "needs a file");
    if (options->blas && !strcmp(options->blas, "none")) options->blas = "";
    return 0;
}

/* --- ranking --- */

/* What the program has open. */
typedef struct embedder_program {
    embedder_encoder *encoder;
    wordpiece *vocabulary;
    text_list texts;
    embed_result all; /* vectors of the texts */
} embedder_program;

static loch_status read_texts(const main_options *options, text_list *texts)
{
    const text_unit unit = options->vectors ? TEXT_LINES : TEXT_SENTENCES;
    for (int i = 0; i < options->files_count; i++)
        LOCH_RETURN(text_read(texts, options->files[i], unit));
    for (size_t i = 0; !options->files_count && i < sizeof sentences / sizeof *sentences; i++)
        LOCH_RETURN(text_add(texts, sentences[i], strlen(sentences[i])));
    if (!texts->count) return loch_error_set(LOCH_E_NOT_FOUND, NULL, 0, "the files have no sentence");
    return LOCH_OK;
}

/* Prints as much of a sentence as fits a line, and whole characters only. */
static void print_cut(double score, const char *text)
{
    size_t length = strlen(text);
    const int is_long = length > LINE;
    for (length = is_long ? LINE : length; is_long && length && (text[length] & 0xc0) == 0x80;)
        length--;
    printf("  %5.2f  %.*s%s\n", score, (int)length, text, is_long ? "..." : "");
}

static loch_status rank(embedder_program *program, const main_options *options, const char *query)
{
    text_list queries_list = {.count = 0};
    embed_result asked = {.vectors = NULL};
    void *vectors, *vector;
    size_t indices[1000];
    float scores[1000];
    const size_t count = options->top < program->texts.count ? options->top : program->texts.count;
    loch_status status = text_add(&queries_list, query, strlen(query));
    if (status == LOCH_OK)
        status = embed_texts(program->encoder, program->vocabulary, &queries_list, options->tokens, &asked);
    text_release(&queries_list);
    LOCH_AUTO(tensor) holder = asked.vectors;
    LOCH_RETURN(status);
    LOCH_RETURN(loch_tensor_get_address(program->all.vectors, &vectors));
    LOCH_RETURN(loch_tensor_get_address(holder, &vector));
    embed_rank(vectors, program->texts.count, vector, count, indices, scores);
    printf("\n\"%s\"\n", query);
    for (size_t i = 0; i < count; i++)
        print_cut((double)scores[i], program->texts.items[indices[i]]);
    return LOCH_OK;
}

static loch_status rank_all(embedder_program *program, const main_options *options)
{
    for (size_t i = 0; i < options->queries_count; i++)
        LOCH_RETURN(rank(program, options, options->queries[i]));
    for (size_t i = 0; !options->queries_count && i < sizeof queries / sizeof *queries; i++)
        LOCH_RETURN(rank(program, options, queries[i]));
    return LOCH_OK;
}

static loch_status print_figures(const embedder_program *program)
{
    loch_stats stats = {.size = sizeof stats};
    LOCH_RETURN(loch_allocator_get_stats(program->encoder->pool, &stats));
    printf("\n%zu sentences, %zu tokens in %.0f ms: %.0f sentences/s on %s (%s)\n", program->texts.count,
           program->all.tokens, program->all.seconds * 1e3, (double)program->texts.count / program->all.seconds,
           loch_device_get_name(program->encoder->device), program->encoder->text);
    printf("pool: %.1f MiB in use, peak %.1f MiB\n", (double)stats.requested_bytes / MIB,
           (double)stats.peak_requested_bytes / MIB);
    return LOCH_OK;
}

static loch_status run(embedder_program *program, const main_options *options)
{
    char path[4096];
    const encoder_options chosen = {.model = path,
                                    .device = options->device,
                                    .dtype = strcmp(options->type, "f16") == 0 ? LOCH_F16 : LOCH_F32,
                                    .threads = options->threads,
                                    .blas = options->blas};
    snprintf(path, sizeof path, "%.4000s/vocab.txt", options->folder);
    LOCH_RETURN(wordpiece_open(path, &program->vocabulary));
    snprintf(path, sizeof path, "%.4000s/model.safetensors", options->folder);
    LOCH_RETURN(encoder_open(&chosen, &program->encoder));
    LOCH_RETURN(read_texts(options, &program->texts));
    LOCH_RETURN(embed_texts(program->encoder, program->vocabulary, &program->texts, options->tokens, &program->all));
    if (options->vectors) return loch_npy_save(program->all.vectors, options->vectors, NULL);
    LOCH_RETURN(rank_all(program, options));
    return print_figures(program);
}

/* --- the program --- */

/* Writes the folder of the cache where scripts/setup puts the model. */
static void find_cache(char folder[4096])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    snprintf(folder, 4096, "%.2000s%s/loch/embedder",
             cache && *cache ? cache
             : home          ? home
                             : "",
             cache && *cache ? "" : "/.cache");
}

static int has_model(const char *folder)
{
    char path[4200];
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return access(path, F_OK) == 0;
}

/* Output counts as printed only when it was written without an error. */
static int finish(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout)) return code;
    fputs("embedder: the output cannot be written\n", stderr);
    return 1;
}

int main(int count, char **arguments)
{
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    main_options options = {
        .device = "cpu", .type = "f32", .threads = cpus > 0 ? (uint64_t)cpus : 1, .top = 5, .tokens = 256};
    embedder_program program = {.encoder = NULL};
    char folder[4096];
    const int code = read_options(&options, count, arguments);
    if (code == -1) fputs(help, stdout);
    if (code) return code == -1 ? finish(0) : code;
    if (!options.folder) {
        find_cache(folder);
        options.folder = folder;
        if (!has_model(folder)) {
            printf("there is no model in %s; make demo-embedder brings it\n", folder);
            return finish(0);
        }
    }
    const loch_status status = run(&program, &options);
    if (status != LOCH_OK) fprintf(stderr, "embedder: %s\n", loch_error_get()->sentence);
    loch_tensor_release(program.all.vectors);
    text_release(&program.texts);
    encoder_close(program.encoder);
    wordpiece_close(program.vocabulary);
    return finish(status == LOCH_OK ? 0 : 1);
}
