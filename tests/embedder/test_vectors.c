/* SPDX-License-Identifier: MIT */
/* The encoder on the CPU: the vectors of sentence-transformers where the real model is there (vectors.npy), kernels for
 * all processors, threads and batches that do not change a result. */
#include "embedder_fixture.h"
#include "blas.h"
#include "embed.h"

/* --- against a reference in double precision --- */

static double random_value(test_random *random)
{
    return (double)(test_random_next(random) >> 40) / (1 << 23) - 1;
}

static void check_near(const char *what, double found, double expected, double tolerance)
{
    if (!(fabs(found - expected) <= tolerance)) fail_msg("%s is %.9g, expected %.9g", what, found, expected);
}

static void check_gelu(const cpu_kernels *kernels)
{
    static float x[2 * MLP], bias[MLP];
    double before[2 * MLP];
    for (size_t i = 0; i < (size_t)2 * MLP; i++) {
        x[i] = i == 0 ? -1e4F : i == 1 ? 1e4F : i == 2 ? 0 : -12 + 24 * (float)i / (2 * MLP);
        bias[i % MLP] = (float)(i % MLP) * 1e-4F;
    }
    for (size_t i = 0; i < (size_t)2 * MLP; i++)
        before[i] = (double)(x[i] + bias[i % MLP]);
    kernels->gelu(bias, 2, x);
    for (size_t i = 0; i < (size_t)2 * MLP; i++)
        check_near("gelu", (double)x[i], 0.5 * before[i] * (1 + erf(before[i] / sqrt(2.0))),
                   4e-7 * fmax(1, fabs(before[i])));
}

static void check_norm(const cpu_kernels *kernels, test_random *random)
{
    float x[2 * WIDTH], weight[WIDTH], bias[WIDTH];
    double before[2 * WIDTH];
    for (size_t i = 0; i < (size_t)2 * WIDTH; i++) {
        before[i] = (double)(x[i] = (float)(5 + 3 * random_value(random)));
        weight[i % WIDTH] = (float)random_value(random);
        bias[i % WIDTH] = (float)random_value(random);
    }
    kernels->norm(weight, bias, 2, x);
    for (size_t row = 0; row < 2; row++) {
        double mean = 0, variance = 0;
        for (size_t i = 0; i < WIDTH; i++)
            mean += before[row * WIDTH + i] / WIDTH;
        for (size_t i = 0; i < WIDTH; i++)
            variance += pow(before[row * WIDTH + i] - mean, 2) / WIDTH;
        for (size_t i = 0; i < WIDTH; i++)
            check_near("norm", (double)x[row * WIDTH + i],
                       (before[row * WIDTH + i] - mean) / sqrt(variance) * (double)weight[i] + (double)bias[i], 1e-5);
    }
}

/* The scores reach from -200 to 200, so that most weights are 0. */
static void check_attention(const cpu_kernels *kernels, size_t length, test_random *random)
{
    float *qkv = malloc(length * QKV * sizeof *qkv), *mixed = malloc(length * WIDTH * sizeof *mixed);
    float *scratch = malloc(CPU_SCRATCH * sizeof *scratch), bias[QKV] = {0};
    double *scores = malloc(length * sizeof *scores);
    for (size_t i = 0; i < length * QKV; i++)
        qkv[i] = (float)(3 * random_value(random));
    for (size_t i = 0; i < QKV; i++)
        bias[i] = (float)random_value(random);
    kernels->attend(&(cpu_attention){.qkv = qkv,
                                     .query_bias = bias,
                                     .key_bias = bias + WIDTH,
                                     .value_bias = bias + (size_t)2 * WIDTH,
                                     .length = length,
                                     .scratch = scratch,
                                     .mixed = mixed});
    for (size_t row = 0; row<length; row += length> 40 ? 17 : 1)
        for (size_t head = 0; head < HEADS; head++) {
            double top = -INFINITY, sum = 0;
            for (size_t j = 0; j < length; j++) {
                scores[j] = 0;
                for (size_t i = head * HEAD; i < (head + 1) * HEAD; i++)
                    scores[j] += ((double)qkv[row * QKV + i] + (double)bias[i]) *
                                 ((double)qkv[j * QKV + WIDTH + i] + (double)bias[WIDTH + i]) / sqrt(HEAD);
                top = fmax(top, scores[j]);
            }
            for (size_t j = 0; j < length; j++)
                sum += scores[j] = exp(scores[j] - top);
            for (size_t i = head * HEAD; i < (head + 1) * HEAD; i++) {
                double expected = (double)bias[2 * WIDTH + i];
                for (size_t j = 0; j < length; j++)
                    expected += scores[j] / sum * (double)qkv[j * QKV + 2 * WIDTH + i];
                check_near("attention", (double)mixed[row * WIDTH + i], expected, 3e-5);
            }
        }
    free(qkv);
    free(mixed);
    free(scratch);
    free(scores);
}

static void check_product(const cpu_kernels *kernels, test_random *random)
{
    float x[3 * WIDTH], w[5 * WIDTH], y[3 * 7];
    for (size_t i = 0; i < sizeof x / sizeof *x; i++)
        x[i] = (float)random_value(random);
    for (size_t i = 0; i < sizeof w / sizeof *w; i++)
        w[i] = (float)random_value(random);
    for (int adds = 0; adds < 2; adds++) {
        for (size_t i = 0; i < 21; i++)
            y[i] = adds ? 2 : NAN; /* without adding, y is not read */
        kernels->multiply(x, w, 3, 5, WIDTH, (float)adds, y, 7);
        for (size_t i = 0; i < 3; i++)
            for (size_t j = 0; j < 5; j++) {
                double expected = adds ? 2 : 0;
                for (size_t k = 0; k < WIDTH; k++)
                    expected += (double)x[i * WIDTH + k] * (double)w[j * WIDTH + k];
                check_near("product", (double)y[i * 7 + j], expected, 1e-4);
            }
    }
}

static void kernels_of_all_processors_agree_with_the_formulas(void **state)
{
    (void)state;
    const cpu_kernels *all[] = {
        &cpu_kernels_plain,
        cpu_kernels_get(),
#if defined(__x86_64__)
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? &cpu_kernels_avx2 : &cpu_kernels_plain
#else
        &cpu_kernels_plain
#endif
    };
    const size_t lengths[] = {1, 2, 3, 4, 5, 15, 16, 17, 33, 100, POSITIONS};
    test_random random = {test_seed(7)};
    for (size_t i = 0; i < 3; i++) {
        check_gelu(all[i]);
        check_norm(all[i], &random);
        check_product(all[i], &random);
        for (size_t j = 0; j < sizeof lengths / sizeof *lengths; j++)
            check_attention(all[i], lengths[j], &random);
    }
}

/* --- the encoder --- */

/* Vectors do not depend on the other sentences of a batch, nor on the threads, nor on the BLAS. */
static void batches_threads_and_blas_change_no_vector(void **state)
{
    (void)state;
    char path[] = "/tmp/loch-embedder.XXXXXX";
    enum { COUNT = 9, VOCABULARY = 50 };
    const size_t lengths[COUNT] = {1, 7, 16, 2, 300, 33, 5, 64, 3};
    const struct {
        size_t threads;
        const char *blas;
    } ways[] = {{1, ""}, {3, ""}, {16, NULL}};
    static int32_t tokens[1000];
    size_t starts[COUNT + 1];
    static float vectors[3][COUNT * WIDTH], alone[WIDTH];
    const token_batch batch = fixture_batch(lengths, COUNT, VOCABULARY, tokens, starts);
    fixture_write_model(path, VOCABULARY, (fixture_damage){.random_seed = 5});
    for (size_t i = 0; i < 3; i++) {
        embedder_encoder *encoder;
        const encoder_options options = {
            .model = path, .device = "cpu", .dtype = LOCH_F32, .threads = ways[i].threads, .blas = ways[i].blas};
        CHECK_OK(encoder_open(&options, &encoder));
        CHECK_OK(encoder_run(encoder, &batch, vectors[i]));
        for (size_t j = 0; j < COUNT; j++) {
            const size_t one[] = {0, lengths[j]};
            check_near("length", fixture_cosine(vectors[i] + j * WIDTH, vectors[i] + j * WIDTH), 1, 1e-5);
            check_near("cosine", fixture_cosine(vectors[i] + j * WIDTH, vectors[0] + j * WIDTH), 1, 1e-5);
            CHECK_OK(encoder_run(encoder, &(token_batch){tokens + starts[j], one, 1}, alone));
            check_near("cosine", fixture_cosine(vectors[i] + j * WIDTH, alone), 1, 1e-5);
        }
        assert_true(fixture_cosine(vectors[i], vectors[i] + WIDTH) < 0.99); /* different sentences differ */
        encoder_close(encoder);
    }
    unlink(path);
}

static void vectors_are_those_of_sentence_transformers(void **state)
{
    (void)state;
    char path[4096];
    wordpiece *vocabulary;
    embedder_encoder *encoder;
    text_list texts = {.count = 0};
    embed_result result;
    loch_tensor *golden;
    void *ours, *theirs;
    if (!fixture_find_real("vocab.txt", path)) {
        print_message("there is no %s: scripts/setup embedder\n", path);
        skip();
    }
    CHECK_OK(wordpiece_open(path, &vocabulary));
    assert_true(fixture_find_real("model.safetensors", path));
    CHECK_OK(
        encoder_open(&(encoder_options){.model = path, .device = "cpu", .dtype = LOCH_F32, .threads = 2}, &encoder));
    CHECK_OK(text_read(&texts, EMBEDDER_FILES "/sentences.txt", TEXT_LINES));
    CHECK_OK(embed_texts(encoder, vocabulary, &texts, 256, &result));
    CHECK_OK(loch_npy_load(EMBEDDER_FILES "/vectors.npy", NULL, &golden));
    assert_int_equal(loch_tensor_get_size(golden, 0), texts.count);
    CHECK_OK(loch_tensor_get_address(result.vectors, &ours));
    CHECK_OK(loch_tensor_get_address(golden, &theirs));
    for (size_t i = 0; i < texts.count; i++)
        check_near("cosine", fixture_cosine((float *)ours + i * WIDTH, (float *)theirs + i * WIDTH), 1, 1e-6);
    loch_tensor_release(golden);
    loch_tensor_release(result.vectors);
    text_release(&texts);
    encoder_close(encoder);
    wordpiece_close(vocabulary);
}

/* --- ranking and text --- */

static void the_nearest_come_first(void **state)
{
    (void)state;
    static float vectors[4 * WIDTH], query[WIDTH];
    size_t indices[4];
    float scores[4];
    query[0] = 1;
    for (size_t i = 0; i < 4; i++)
        vectors[i * WIDTH] = (float[]){0.5F, -1, 0.9F, 0.7F}[i];
    embed_rank(vectors, 4, query, 2, indices, scores);
    assert_int_equal(indices[0], 2);
    assert_int_equal(indices[1], 3);
    embed_rank(vectors, 4, query, 4, indices, scores);
    assert_int_equal(indices[2], 0);
    assert_int_equal(indices[3], 1);
}

static void sentences_are_cut(void **state)
{
    (void)state;
    char path[] = "/tmp/loch-embedder.XXXXXX";
    static const char text[] =
        "# A heading\n\nThe first one is here. And\nhere  the second! Too short.\n| a table | row |\n"
        "- an item of a list\n```\nint code = is_left_out(here, now);\n```\nIs version 1.5 the last one?";
    text_list texts = {.count = 0};
    const int file = mkstemp(path);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    close(file);
    CHECK_OK(text_read(&texts, path, TEXT_SENTENCES));
    assert_int_equal(texts.count, 4);
    assert_string_equal(texts.items[0], "The first one is here.");
    assert_string_equal(texts.items[1], "And here the second!");
    assert_string_equal(texts.items[2], "an item of a list");
    assert_string_equal(texts.items[3], "Is version 1.5 the last one?");
    text_release(&texts);
    unlink(path);
    CHECK_FAILS(text_read(&texts, path, TEXT_LINES), NOT_FOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_of_all_processors_agree_with_the_formulas),
        cmocka_unit_test(batches_threads_and_blas_change_no_vector),
        cmocka_unit_test(vectors_are_those_of_sentence_transformers),
        cmocka_unit_test(the_nearest_come_first),
        cmocka_unit_test(sentences_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
