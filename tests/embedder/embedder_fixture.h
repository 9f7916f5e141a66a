/* SPDX-License-Identifier: MIT */
/* Models for the tests of the embedder: the real one where scripts/setup embedder has brought it, and files with the
 * shapes of the real one. */
#ifndef EMBEDDER_FIXTURE_H
#define EMBEDDER_FIXTURE_H

#include "support/test.h"
#include "encoder.h"
#include <fcntl.h>
#include <math.h>
#include <unistd.h>

/* Writes the path of a file of the real model: of LOCH_TEST_EMBEDDER, or of the cache. Returns whether it is there. */
__attribute__((unused)) static bool fixture_find_real(const char *file, char path[4096])
{
    const char *folder = getenv("LOCH_TEST_EMBEDDER"), *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (folder && *folder)
        snprintf(path, 4096, "%.2000s/%.100s", folder, file);
    else if (cache && *cache)
        snprintf(path, 4096, "%.2000s/loch/embedder/%.100s", cache, file);
    else
        snprintf(path, 4096, "%.2000s/.cache/loch/embedder/%.100s", home ? home : "", file);
    return access(path, R_OK) == 0;
}

/* What is wrong with a file that fixture_write_model makes. */
typedef struct fixture_damage {
    size_t missing;     /* index + 1 of a weight that is left out */
    size_t turned;      /* index + 1 of a weight whose rows are one more */
    size_t other_type;  /* index + 1 of a weight in f64 */
    long cut_bytes;     /* bytes that the file lacks at its end */
    long header_bytes;  /* not 0: the length of the header as the file says it */
    size_t random_seed; /* not 0: random weights; otherwise all weights are zero */
} fixture_damage;

/* Weights of a size that keeps the numbers of the layers near 1. */
__attribute__((unused)) static void fixture_fill(float *data, size_t count, const model_shape *shape,
                                                 test_random *random)
{
    const int is_norm = strstr(shape->name, "LayerNorm.weight") != NULL;
    const float scale = shape->columns ? 3.4F / sqrtf((float)shape->columns) : 0.2F, middle = is_norm ? 1 : 0;
    for (size_t i = 0; i < count; i++)
        data[i] = middle + scale * ((float)(test_random_next(random) >> 40) / (1 << 24) - 0.5F);
}

/* Makes a model with `vocabulary` tokens in a new file below /tmp. The data of a model of zeros takes no disk space.
 * @param path  "/tmp/....XXXXXX"; receives the name */
__attribute__((unused)) static void fixture_write_model(char *path, int64_t vocabulary, fixture_damage damage)
{
    static char header[1 << 16];
    size_t length = 8, bytes = 0;
    length += (size_t)snprintf(header + length, sizeof header - length, "{");
    test_random random = {damage.random_seed};
    const int file = mkstemp(path);
    assert_true(file >= 0);
    for (size_t i = 0; i < WEIGHTS; i++) {
        model_shape shape = model_describe(i);
        if (damage.missing == i + 1) continue;
        const int is_wide = damage.other_type == i + 1;
        const int64_t rows = (shape.rows < 0 ? vocabulary : shape.rows) + (damage.turned == i + 1);
        const size_t end = bytes + (size_t)(rows * (shape.columns ? shape.columns : 1)) * (is_wide ? 8 : 4);
        char columns[32] = "";
        if (shape.columns) snprintf(columns, sizeof columns, ",%lld", (long long)shape.columns);
        length += (size_t)snprintf(header + length, sizeof header - length,
                                   "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%lld%s],\"data_offsets\":[%zu,%zu]}",
                                   length > 9 ? "," : "", shape.name, is_wide ? "F64" : "F32", (long long)rows, columns,
                                   bytes, end);
        bytes = end;
    }
    length += (size_t)snprintf(header + length, sizeof header - length, "}");
    while (length % 8)
        header[length++] = ' ';
    const uint64_t told = damage.header_bytes ? (uint64_t)damage.header_bytes : length - 8;
    memcpy(header, &told, 8);
    assert_int_equal(write(file, header, length), length);
    for (size_t i = 0, at = length; damage.random_seed && i < WEIGHTS; i++) {
        const model_shape shape = model_describe(i);
        const size_t count = (size_t)((shape.rows < 0 ? vocabulary : shape.rows) * (shape.columns ? shape.columns : 1));
        float *data = malloc(count * sizeof *data);
        assert_non_null(data);
        fixture_fill(data, count, &shape, &random);
        assert_int_equal(pwrite(file, data, count * sizeof *data, (off_t)at), count * sizeof *data);
        free(data);
        at += count * sizeof *data;
    }
    assert_int_equal(ftruncate(file, (off_t)(length + bytes) - damage.cut_bytes), 0);
    close(file);
}

/* Tokens 0, 1, 2, ... modulo the vocabulary; sentence i has lengths[i] of them. */
__attribute__((unused)) static token_batch fixture_batch(const size_t *lengths, size_t count, size_t vocabulary,
                                                         int32_t *tokens, size_t *starts)
{
    starts[0] = 0;
    for (size_t i = 0; i < count; i++) {
        starts[i + 1] = starts[i] + lengths[i];
        for (size_t at = starts[i]; at < starts[i + 1]; at++)
            tokens[at] = (int32_t)((at * 7 + i * 3) % vocabulary);
    }
    return (token_batch){.tokens = tokens, .starts = starts, .count = count};
}

/* Returns the cosine of two vectors of length 1. */
__attribute__((unused)) static double fixture_cosine(const float *a, const float *b)
{
    double sum = 0;
    for (size_t i = 0; i < WIDTH; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

#endif
