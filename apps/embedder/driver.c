/* SPDX-License-Identifier: MIT */
/* driver MODEL TOKENS DEVICE TYPE THREADS BATCH: the embedder's side of the comparisons in bench/embedder.
 *
 * TOKENS has a sentence on each line, as numbers. The sentences go through the encoder in batches of BATCH. Commands on
 * standard input:
 *
 *     run N       goes through all sentences N times; answers with the nanoseconds of the fastest time and the median
 *     save FILE   writes the vectors of the last run as .npy
 *     memory      answers with the kilobytes resident before the model was opened, the most so far, and the bytes that
 *                 the pool holds */
#include "encoder.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct sentences {
    int32_t *tokens;
    size_t *starts;
    size_t count;
} sentences;

static uint64_t now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000U + (uint64_t)time.tv_nsec;
}

/* Reads a figure of this process in kilobytes. */
static long resident(const char *name)
{
    char line[256];
    long value = -1;
    FILE *file = fopen("/proc/self/status", "re");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0) value = strtol(line + strlen(name) + 1, NULL, 10);
    if (file) (void)fclose(file);
    return value;
}

static void read_sentences(const char *path, sentences *out)
{
    char *line = NULL;
    size_t room = 0, tokens = 0;
    FILE *file = fopen(path, "re");
    if (!file) {
        perror(path);
        exit(1);
    }
    *out = (sentences){.tokens = calloc(1 << 22, sizeof(int32_t)), .starts = calloc(1 << 16, sizeof(size_t))};
    while (out->tokens && out->starts && getline(&line, &room, file) >= 0 && out->count + 1 < 1 << 16) {
        char *end = line;
        for (char *at = line; tokens < 1 << 22; at = end) {
            const long token = strtol(at, &end, 10);
            if (end == at) break;
            out->tokens[tokens++] = (int32_t)token;
        }
        out->starts[++out->count] = tokens;
    }
    free(line);
    (void)fclose(file);
}

/* Runs all sentences once, batch by batch. */
static void run_once(embedder_encoder *encoder, const sentences *all, size_t batch_size, float *vectors)
{
    size_t *starts = malloc((batch_size + 1) * sizeof *starts);
    for (size_t first = 0; starts && first < all->count; first += batch_size) {
        const size_t count = all->count - first < batch_size ? all->count - first : batch_size;
        for (size_t i = 0; i <= count; i++)
            starts[i] = all->starts[first + i] - all->starts[first];
        LOCH_CHECK(encoder_run(
            encoder, &(token_batch){.tokens = all->tokens + all->starts[first], .starts = starts, .count = count},
            vectors + first * WIDTH));
    }
    free(starts);
}

static int compare(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void run(embedder_encoder *encoder, const sentences *all, size_t batch_size, float *vectors, size_t times)
{
    uint64_t taken[1000] = {0};
    times = times < 1 ? 1 : times > 1000 ? 1000 : times;
    for (size_t i = 0; i < times; i++) {
        const uint64_t start = now();
        run_once(encoder, all, batch_size, vectors);
        taken[i] = now() - start;
    }
    qsort(taken, times, sizeof *taken, compare);
    printf("%llu %llu\n", (unsigned long long)taken[0], (unsigned long long)taken[times / 2]);
}

static void save(float *vectors, size_t count, char *path)
{
    LOCH_AUTO(tensor) tensor = NULL;
    path[strcspn(path, "\n")] = 0;
    LOCH_CHECK(loch_tensor_wrap(LOCH_F32, LOCH_SHAPE((int64_t)count, WIDTH), vectors, NULL, &tensor));
    LOCH_CHECK(loch_npy_save(tensor, path, NULL));
    puts("saved");
}

static void print_memory(const embedder_encoder *encoder, long before)
{
    loch_stats stats = {.size = sizeof stats};
    LOCH_CHECK(loch_allocator_get_stats(encoder->pool, &stats));
    printf("%ld %ld %llu\n", before, resident("VmHWM"), (unsigned long long)stats.reserved_bytes);
}

int main(int count, char **arguments)
{
    char line[4096];
    sentences all;
    embedder_encoder *encoder;
    const long threads = count == 7 ? strtol(arguments[5], NULL, 10) : 0;
    const long batch_size = count == 7 ? strtol(arguments[6], NULL, 10) : 0;
    if (threads < 1 || batch_size < 1) {
        fputs("usage: driver MODEL TOKENS DEVICE TYPE THREADS BATCH\n", stderr);
        return 2;
    }
    read_sentences(arguments[2], &all);
    float *vectors = calloc(all.count + 1, WIDTH * sizeof *vectors);
    if (!vectors) abort();
    const long before = resident("VmRSS");
    const encoder_options options = {.model = arguments[1],
                                     .device = arguments[3],
                                     .dtype = strcmp(arguments[4], "f16") == 0 ? LOCH_F16 : LOCH_F32,
                                     .threads = (size_t)threads};
    LOCH_CHECK(encoder_open(&options, &encoder));
    printf("%s\n", encoder->text);
    (void)fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "run ", 4) == 0)
            run(encoder, &all, (size_t)batch_size, vectors, (size_t)strtol(line + 4, NULL, 10));
        else if (strncmp(line, "save ", 5) == 0)
            save(vectors, all.count, line + 5);
        else
            print_memory(encoder, before);
        (void)fflush(stdout);
    }
    encoder_close(encoder);
    free(vectors);
    free(all.tokens);
    free(all.starts);
    return 0;
}
