/* SPDX-License-Identifier: MIT */
/* apps/embedder on a real GPU: its vectors in f32 and f16 are those of the CPU, for random weights, and for the
 * real model where LOCH_TEST_EMBEDDER names a folder with it. */
#include "cuda_fixture.h"
#include "embedder_fixture.h"
#include "double.h"
#include "find_library.h"

enum { COUNT = 12, VOCABULARY = 100 };

/* Lengths around the 64 rows of a block and the 64 keys of a tile. */
static const size_t lengths[COUNT] = {1, 63, 64, 65, 2, 128, 17, 512, 129, 8, 300, 16};

static embedder_encoder *open_on(const char *model, const char *name, loch_dtype dtype)
{
    embedder_encoder *encoder;
    const encoder_options options = {.model = model, .device = name, .dtype = dtype, .threads = 4, .blas = ""};
    CHECK_OK(encoder_open(&options, &encoder));
    return encoder;
}

static void check_model(const char *path, double tolerance_f32, double tolerance_f16)
{
    static int32_t tokens[COUNT * POSITIONS];
    size_t starts[COUNT + 1];
    static float expected[COUNT * WIDTH], found[COUNT * WIDTH], alone[WIDTH];
    embedder_encoder *cpu = open_on(path, "cpu", LOCH_F32);
    const token_batch batch = fixture_batch(lengths, COUNT, cpu->model.vocabulary, tokens, starts);
    CHECK_OK(encoder_run(cpu, &batch, expected));
    encoder_close(cpu);
    for (int is_half = 0; is_half < 2; is_half++) {
        const double tolerance = is_half ? tolerance_f16 : tolerance_f32;
        double lowest = 1;
        embedder_encoder *cuda = open_on(path, "cuda:0", is_half ? LOCH_F16 : LOCH_F32);
        for (int time = 0; time < 2; time++) { /* the second time in memory that is there */
            memset(found, 0, sizeof found);
            CHECK_OK(encoder_run(cuda, &batch, found));
            for (size_t i = 0; i < COUNT; i++) {
                const double cosine = fixture_cosine(expected + i * WIDTH, found + i * WIDTH);
                lowest = cosine < lowest ? cosine : lowest;
                if (!(fabs(cosine - 1) <= tolerance))
                    fail_msg("sentence %zu of %zu tokens: cosine %.7f", i, lengths[i], cosine);
            }
        }
        for (size_t i = 0; i < COUNT; i++) { /* a sentence alone has the vector that it has among others */
            const size_t one[] = {0, lengths[i]};
            CHECK_OK(encoder_run(cuda, &(token_batch){tokens + starts[i], one, 1}, alone));
            if (!(fabs(fixture_cosine(alone, found + i * WIDTH) - 1) <= tolerance))
                fail_msg("sentence %zu alone differs", i);
        }
        print_message("%s: lowest cosine to the CPU %.8f\n", is_half ? "f16" : "f32", lowest);
        encoder_close(cuda);
    }
}

static void random_weights_give_the_vectors_of_the_cpu(void **state)
{
    (void)state;
    char path[] = "/tmp/loch-embedder.XXXXXX";
    fixture_write_model(path, VOCABULARY, (fixture_damage){.random_seed = 11});
    check_model(path, 1e-5, 2e-3);
    unlink(path);
}

static void the_real_model_gives_the_vectors_of_the_cpu(void **state)
{
    (void)state;
    char path[4096];
    if (!getenv("LOCH_TEST_EMBEDDER") || !fixture_find_real("model.safetensors", path)) {
        print_message("LOCH_TEST_EMBEDDER names no folder with model.safetensors\n");
        return;
    }
    check_model(path, 1e-6, 1e-4);
}

/* Leaves numbers that are not finite in the memory that the workspace of an encoder will get. */
static void poison(embedder_encoder *encoder)
{
    const unsigned char byte = 0xff; /* NaN in f16 and in f32 */
    void *address = NULL;
    const size_t bytes = 64 * TEST_MIB;
    CHECK_OK(loch_alloc(encoder->pool, bytes, &address));
    CHECK_OK(loch_fill(address, bytes, &byte, 1));
    CHECK_OK(loch_device_sync(device));
    CHECK_OK(loch_free(encoder->pool, address));
}

/* Neither memory that no kernel has written nor what another batch left is part of a vector: equal bit for bit. */
static void what_was_in_memory_before_changes_nothing(void **state)
{
    (void)state;
    char path[] = "/tmp/loch-embedder.XXXXXX";
    static int32_t tokens[COUNT * POSITIONS], other_tokens[COUNT * POSITIONS];
    size_t starts[COUNT + 1], other_starts[COUNT + 1], other_lengths[COUNT];
    static float first[COUNT * WIDTH], again[COUNT * WIDTH], other[COUNT * WIDTH];
    fixture_write_model(path, VOCABULARY, (fixture_damage){.random_seed = 12});
    for (size_t i = 0; i < COUNT; i++)
        other_lengths[i] = POSITIONS;
    const token_batch batch = fixture_batch(lengths, COUNT, VOCABULARY, tokens, starts);
    const token_batch larger = fixture_batch(other_lengths, COUNT, VOCABULARY, other_tokens, other_starts);
    for (int is_half = 0; is_half < 2; is_half++) {
        embedder_encoder *encoder = open_on(path, "cuda:0", is_half ? LOCH_F16 : LOCH_F32);
        poison(encoder);
        CHECK_OK(encoder_run(encoder, &batch, first));
        for (size_t i = 0; i < (size_t)COUNT * WIDTH; i++)
            assert_true(isfinite(first[i]));
        CHECK_OK(encoder_run(encoder, &larger, other));
        CHECK_OK(encoder_run(encoder, &batch, again));
        assert_memory_equal(first, again, sizeof first);
        encoder_close(encoder);
    }
    unlink(path);
}

static void other_types_are_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/loch-embedder.XXXXXX";
    embedder_encoder *encoder;
    fixture_write_model(path, VOCABULARY, (fixture_damage){.cut_bytes = 0});
    CHECK_FAILS(encoder_open(&(encoder_options){.model = path, .device = "cuda:0", .dtype = LOCH_BF16}, &encoder),
                UNSUPPORTED);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_weights_give_the_vectors_of_the_cpu),
        cmocka_unit_test(the_real_model_gives_the_vectors_of_the_cpu),
        cmocka_unit_test(what_was_in_memory_before_changes_nothing),
        cmocka_unit_test(other_types_are_refused),
    };
    if (loch_device_open("cuda:0", &device) != LOCH_OK) return test_skip_gpu();
    const bool is_double = is_test_double(device, "cuBLAS and kernels of examples need a GPU");
    loch_device_clear(&device);
    if (is_double) return TEST_SKIPPED;
    if (!find_library(LOCH_LIBRARY_CUBLAS, "cublas")) return test_skip_gpu();
    return CUDA_RUN(tests);
}
