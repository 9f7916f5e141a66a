/* SPDX-License-Identifier: MIT */
/* Model files that are not as they should be, and batches that the encoder refuses. Needs no real model. */
#include "embedder_fixture.h"

static loch_status open_damaged(fixture_damage damage)
{
    char path[] = "/tmp/loch-embedder.XXXXXX";
    embedder_encoder *encoder = TEST_UNTOUCHED;
    fixture_write_model(path, 16, damage);
    const loch_status status =
        encoder_open(&(encoder_options){.model = path, .device = "cpu", .dtype = LOCH_F32, .blas = ""}, &encoder);
    unlink(path);
    if (status == LOCH_OK)
        encoder_close(encoder);
    else
        assert_null(encoder);
    return status;
}

static void a_whole_file_opens(void **state)
{
    (void)state;
    CHECK_OK(open_damaged((fixture_damage){.cut_bytes = 0}));
}

static void a_truncated_file_is_refused(void **state)
{
    (void)state;
    const long cuts[] = {1, 4096, 40 << 20};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
        CHECK_FAILS(open_damaged((fixture_damage){.cut_bytes = cuts[i]}), CORRUPT);
    CHECK_FAILS(open_damaged((fixture_damage){.header_bytes = 1L << 60}), CORRUPT);
    CHECK_FAILS(open_damaged((fixture_damage){.header_bytes = 100}), CORRUPT);
}

static void a_missing_weight_is_named(void **state)
{
    (void)state;
    CHECK_FAILS(open_damaged((fixture_damage){.missing = model_index(3, UP_BIAS) + 1}), NOT_FOUND);
    assert_non_null(strstr(loch_error_get()->sentence, "encoder.layer.3.intermediate.dense.bias"));
}

static void a_wrong_shape_or_type_is_named(void **state)
{
    (void)state;
    CHECK_FAILS(open_damaged((fixture_damage){.turned = model_index(5, DOWN) + 1}), CORRUPT);
    assert_non_null(strstr(loch_error_get()->sentence, "encoder.layer.5.output.dense.weight"));
    CHECK_FAILS(open_damaged((fixture_damage){.turned = PLACES + 1}), CORRUPT);
    CHECK_FAILS(open_damaged((fixture_damage){.other_type = EMBEDDING_NORM + 1}), CORRUPT);
    assert_non_null(strstr(loch_error_get()->sentence, "embeddings.LayerNorm.weight"));
}

static void a_missing_file_is_not_found(void **state)
{
    (void)state;
    embedder_encoder *encoder;
    const encoder_options options = {.model = "/nowhere/model.safetensors", .device = "cpu", .dtype = LOCH_F32};
    CHECK_FAILS(encoder_open(&options, &encoder), NOT_FOUND);
}

static void what_the_cpu_cannot_do_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/loch-embedder.XXXXXX";
    embedder_encoder *encoder;
    fixture_write_model(path, 16, (fixture_damage){.cut_bytes = 0});
    CHECK_FAILS(
        encoder_open(&(encoder_options){.model = path, .device = "cpu", .dtype = LOCH_F16, .blas = ""}, &encoder),
        UNSUPPORTED);
    CHECK_FAILS(
        encoder_open(&(encoder_options){.model = path, .device = "cpu", .dtype = LOCH_F32, .blas = "/nowhere.so"},
                     &encoder),
        UNSUPPORTED);
    CHECK_FAILS(encoder_open(&(encoder_options){.model = path, .device = "sim:1GiB", .dtype = LOCH_F32}, &encoder),
                UNSUPPORTED);
    unlink(path);
}

static void a_bad_batch_is_refused(void **state)
{
    (void)state;
    char path[] = "/tmp/loch-embedder.XXXXXX";
    embedder_encoder *encoder;
    static float vectors[2 * WIDTH];
    static int32_t tokens[POSITIONS + 2];
    fixture_write_model(path, 16, (fixture_damage){.cut_bytes = 0});
    CHECK_OK(encoder_open(&(encoder_options){.model = path, .device = "cpu", .dtype = LOCH_F32, .blas = ""}, &encoder));
    unlink(path);
    const size_t empty[] = {0, 0}, longer[] = {0, POSITIONS + 1}, one[] = {0, 1}, backwards[] = {2, 1};
    CHECK_FAILS(encoder_run(encoder, &(token_batch){tokens, empty, 1}, vectors), INVALID);
    CHECK_FAILS(encoder_run(encoder, &(token_batch){tokens, longer, 1}, vectors), INVALID);
    CHECK_FAILS(encoder_run(encoder, &(token_batch){tokens, backwards, 1}, vectors), INVALID);
    tokens[0] = 16;
    CHECK_FAILS(encoder_run(encoder, &(token_batch){tokens, one, 1}, vectors), INVALID);
    tokens[0] = -1;
    CHECK_FAILS(encoder_run(encoder, &(token_batch){tokens, one, 1}, vectors), INVALID);
    tokens[0] = 15;
    CHECK_OK(encoder_run(encoder, &(token_batch){tokens, one, 1}, vectors));
    CHECK_OK(encoder_run(encoder, &(token_batch){tokens, one, 0}, vectors));
    encoder_close(encoder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_file_opens),          cmocka_unit_test(a_truncated_file_is_refused),
        cmocka_unit_test(a_missing_weight_is_named),   cmocka_unit_test(a_wrong_shape_or_type_is_named),
        cmocka_unit_test(a_missing_file_is_not_found), cmocka_unit_test(what_the_cpu_cannot_do_is_refused),
        cmocka_unit_test(a_bad_batch_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
